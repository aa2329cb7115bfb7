// SPDX-License-Identifier: Apache-2.0

package drift_test

import (
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/inject/drift"
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// parseYAML returns a value from YAML, or nil for "".
func parseYAML(t *testing.T, text string) *jsontree.Node {
	t.Helper()
	if text == "" {
		return nil
	}
	var y yaml.Node
	if err := yaml.Unmarshal([]byte(text), &y); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	n, err := jsontree.FromYAML(&y)
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return &n
}

// tokenVolumes has one volume with the API token.
type tokenVolumes struct{}

// IsTokenVolume implements drift.Volumes.
func (tokenVolumes) IsTokenVolume(name string) bool { return name == "kube-api-access-x" }

// inContainer returns a comparison of containers.
func inContainer(of drift.Comparison) drift.Comparison {
	of.Pod = &drift.Pod{Nodes: new(jsontree.Arena), Volumes: tokenVolumes{}}
	of.Field = schema.Pod().At("spec").At("containers").Elem.AsField()
	return of
}

// placeOf returns the place of a difference, or "none".
func placeOf(found *drift.Difference) string {
	if found == nil {
		return "none"
	}
	return found.At
}

const tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// TestFindDifference checks which values of a container are different, if nothing is said about other templates or webhooks.
func TestFindDifference(t *testing.T) {
	t.Parallel()
	const token = `volumeMounts: [{name: kube-api-access-x, readOnly: true, mountPath: ` + tokenPath + `}]`
	for name, c := range map[string]struct{ pod, fragment, want string }{
		"equal":                          {`{name: a, args: [x, y]}`, `{name: a, args: [x, y]}`, "none"},
		"a scalar":                       {`{image: "a:1"}`, `{image: "a:2"}`, "/image"},
		"an absent scalar":               {`{}`, `{image: "a:2"}`, "/image"},
		"an additional scalar":           {`{workingDir: /x}`, `{}`, "/workingDir"},
		"null is absent":                 {`{workingDir: null}`, `{}`, "none"},
		"null of the template":           {`{}`, `{workingDir: null}`, "none"},
		"null of the template excludes":  {`{workingDir: /x}`, `{workingDir: null}`, "/workingDir"},
		"null for an object":             {`{livenessProbe: null}`, `{}`, "none"},
		"the template's null object":     {`{}`, `{livenessProbe: null}`, "none"},
		"Always is no policy to restart": {`{restartPolicy: Always}`, `{restartPolicy: OnFailure}`, "/restartPolicy"},
		"a value that is always sent":    {`{livenessProbe: {httpGet: {httpHeaders: [{name: a, value: ""}]}}}`, `{livenessProbe: {httpGet: {httpHeaders: [{name: a}]}}}`, "none"},
		"zero is absent":                 {`{}`, `{tty: false}`, "none"},
		"zero of the pod is absent":      {`{tty: false}`, `{}`, "none"},
		"more than zero":                 {`{tty: true}`, `{}`, "/tty"},
		"less than one":                  {`{tty: false}`, `{tty: true}`, "/tty"},
		"the empty list of the pod":      {`{args: []}`, `{}`, "none"},
		"another kind":                   {`{args: x}`, `{args: [x]}`, "/args"},
		"the order of a list":            {`{args: [x, y]}`, `{args: [y, x]}`, "/args/0"},
		"a longer list":                  {`{args: [x, y]}`, `{args: [x]}`, "/args"},
		"a shorter list":                 {`{args: [x]}`, `{args: [x, y]}`, "/args"},
		"a field that is not known":      {`{invented: {a: 1}}`, `{invented: {a: 2}}`, "/invented/a"},
		"a list that is not known":       {`{invented: [1, 2]}`, `{invented: [1, 3]}`, "/invented/1"},
		// Quantities and numbers.
		"a quantity in another form":          {`{resources: {limits: {memory: 1Gi}}}`, `{resources: {limits: {memory: 1024Mi}}}`, "none"},
		"a quantity as a number":              {`{resources: {limits: {cpu: 1}}}`, `{resources: {limits: {cpu: "1"}}}`, "none"},
		"another quantity":                    {`{resources: {limits: {cpu: 2}}}`, `{resources: {limits: {cpu: "1"}}}`, "/resources/limits/cpu"},
		"a number for a string":               {`{image: 1}`, `{image: "1"}`, "/image"},
		"a LimitRange's resources":            {`{resources: {limits: {cpu: 1}, requests: {cpu: 1}}}`, `{}`, "none"},
		"a LimitRange's limit":                {`{resources: {limits: {cpu: 1}, requests: {cpu: 1}}}`, `{resources: {requests: {cpu: 1}}}`, "none"},
		"a LimitRange's second limit":         {`{resources: {limits: {cpu: 1, memory: 1Gi}}}`, `{resources: {limits: {cpu: 1}}}`, "none"},
		"requests of a claim":                 {`{resources: {claims: [{name: c}]}}`, `{resources: {limits: {cpu: 1}}}`, "/resources/limits"},
		"a request that is equal to a limit":  {`{resources: {limits: {cpu: 1}}}`, `{resources: {limits: {cpu: 1}, requests: {cpu: 1}}}`, "none"},
		"a request that is less than a limit": {`{resources: {limits: {cpu: 2}}}`, `{resources: {limits: {cpu: 2}, requests: {cpu: 1}}}`, "/resources/requests/cpu"},
		// Defaults of the API server.
		"a default":                       {`{terminationMessagePath: /dev/termination-log}`, `{}`, "none"},
		"no default":                      {`{terminationMessagePath: /dev/other}`, `{}`, "/terminationMessagePath"},
		"a default of the template":       {`{}`, `{terminationMessagePath: /dev/termination-log}`, "none"},
		"always the pull policy Always":   {`{imagePullPolicy: Always}`, `{imagePullPolicy: Never}`, "none"},
		"a default pull policy":           {`{imagePullPolicy: Always}`, `{}`, "none"},
		"another default pull policy":     {`{imagePullPolicy: IfNotPresent}`, `{}`, "none"},
		"no default pull policy":          {`{imagePullPolicy: Never}`, `{}`, "/imagePullPolicy"},
		"another pull policy":             {`{imagePullPolicy: Never}`, `{imagePullPolicy: IfNotPresent}`, "/imagePullPolicy"},
		"the pull policy of latest":       {`{image: a}`, `{image: a, imagePullPolicy: IfNotPresent}`, "none"},
		"the pull policy of a tag":        {`{image: "a:1"}`, `{image: "a:1", imagePullPolicy: IfNotPresent}`, "none"},
		"no pull policy of a tag":         {`{image: "a:1"}`, `{image: "a:1", imagePullPolicy: Never}`, "/imagePullPolicy"},
		"the protocol of a port":          {`{ports: [{containerPort: 1, protocol: TCP}]}`, `{ports: [{containerPort: 1}]}`, "none"},
		"another protocol":                {`{ports: [{containerPort: 1, protocol: UDP}]}`, `{ports: [{containerPort: 1}]}`, "/ports/0"},
		"a probe's default":               {`{livenessProbe: {tcpSocket: {port: 1}, periodSeconds: 10}}`, `{livenessProbe: {tcpSocket: {port: 1}}}`, "none"},
		"a probe that is not the default": {`{livenessProbe: {tcpSocket: {port: 1}, periodSeconds: 11}}`, `{livenessProbe: {tcpSocket: {port: 1}}}`, "/livenessProbe/periodSeconds"},
		// Lists with keys.
		"the order of mounts":        {`{volumeMounts: [{name: b, mountPath: /b}, {name: a, mountPath: /a}]}`, `{volumeMounts: [{name: a, mountPath: /a}, {name: b, mountPath: /b}]}`, "none"},
		"an additional mount":        {`{volumeMounts: [{name: b, mountPath: /b}, {name: a, mountPath: /a}]}`, `{volumeMounts: [{name: a, mountPath: /a}]}`, "/volumeMounts/0"},
		"a missing mount":            {`{volumeMounts: [{name: b, mountPath: /b}]}`, `{volumeMounts: [{name: a, mountPath: /a}, {name: b, mountPath: /b}]}`, "/volumeMounts/-"},
		"a mount that differs":       {`{volumeMounts: [{name: a, mountPath: /a, readOnly: true}]}`, `{volumeMounts: [{name: a, mountPath: /a}]}`, "/volumeMounts/0/readOnly"},
		"a second item with a key":   {`{env: [{name: A, value: a}, {name: A, value: b}]}`, `{env: [{name: A, value: a}]}`, "/env/1"},
		"the order of variables":     {`{env: [{name: B, value: b}, {name: A, value: a}]}`, `{env: [{name: A, value: a}, {name: B, value: b}]}`, "none"},
		"variables that read others": {`{env: [{name: B, value: $(A)}, {name: A, value: a}]}`, `{env: [{name: A, value: a}, {name: B, value: $(A)}]}`, "/env"},
		// The mount of the API token.
		"the token":                      {`{` + token + `}`, `{}`, "none"},
		"the token beside a mount":       {strings.Replace(`{`+token+`}`, "[", "[{name: a, mountPath: /a}, ", 1), `{volumeMounts: [{name: a, mountPath: /a}]}`, "none"},
		"the empty volume for the token": {strings.Replace(`{`+token+`}`, "kube-api-access-x", "pillion-no-token", 1), `{}`, "none"},
		"another volume at its path":     {strings.Replace(`{`+token+`}`, "kube-api-access-x", "evil", 1), `{}`, "/volumeMounts"},
		"a writable token":               {strings.Replace(`{`+token+`}`, "readOnly: true", "readOnly: false", 1), `{}`, "/volumeMounts"},
		"a part of the token":            {strings.Replace(`{`+token+`}`, "{name", "{subPath: x, name", 1), `{}`, "/volumeMounts"},
		"the token at another path":      {strings.Replace(`{`+token+`}`, tokenPath, "/other", 1), `{}`, "/volumeMounts"},
		"the token and another mount":    {strings.Replace(`{`+token+`}`, "[", "[{name: a, mountPath: /a}, ", 1), `{}`, "/volumeMounts"},
		"the token before another mount": {strings.Replace(`{`+token+`}`, "}]", "}, {name: a, mountPath: /a}]", 1), `{}`, "/volumeMounts"},
		"the token as a variable":        {strings.Replace(`{`+token+`}`, "volumeMounts", "env", 1), `{}`, "/env"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod, fragment := parseYAML(t, c.pod), parseYAML(t, c.fragment)
			found := inContainer(drift.Comparison{}).FindDifference(pod, fragment)
			if got := placeOf(found); got != c.want {
				t.Errorf("the difference of\n%s and\n%s is at %s, want %s", c.pod, c.fragment, got, c.want)
			}
			if own := inContainer(drift.Comparison{}).FindDifference(pod, pod); own != nil && name != "a second item with a key" {
				t.Errorf("%s differs from itself at %s", c.pod, own.At)
			}
			if found == nil {
				return
			}
			if name, _, _ := strings.Cut(c.want[1:], "/"); found.Pod == nil && found.Fragment == nil ||
				inContainer(drift.Comparison{}).FindAtPath(pod, fragment, []string{name}) == nil {
				t.Errorf("the difference at %s has no values, or is not found at the path %s", found.At, name)
			}
		})
	}
}

// TestComparisons checks what the fields of a Comparison change.
func TestComparisons(t *testing.T) {
	t.Parallel()
	besides := func(all ...string) (c drift.Comparison) {
		for _, text := range all {
			c.Besides = append(c.Besides, parseYAML(t, text))
		}
		return c
	}
	again, stored, unfinished := drift.Comparison{Again: true}, drift.Comparison{Stored: true}, drift.Comparison{Unfinished: true}
	const gated = `{lifecycle: {stopSignal: SIGUSR1}}`
	for name, c := range map[string]struct {
		of                  drift.Comparison
		pod, fragment, want string
	}{
		// Again: what injection writes, in its order.
		"again: the order of mounts":           {again, `{volumeMounts: [{name: b, mountPath: /b}, {name: a, mountPath: /a}]}`, `{volumeMounts: [{name: a, mountPath: /a}, {name: b, mountPath: /b}]}`, "/volumeMounts/0/name"},
		"again: the token":                     {again, `{volumeMounts: [{name: a, mountPath: /a}, {name: b, mountPath: /b}, {name: kube-api-access-x, readOnly: true, mountPath: ` + tokenPath + `}]}`, `{volumeMounts: [{name: a, mountPath: /a}, {name: b, mountPath: /b}]}`, "none"},
		"again: the order beside the token":    {again, `{volumeMounts: [{name: b, mountPath: /b}, {name: a, mountPath: /a}, {name: kube-api-access-x, readOnly: true, mountPath: ` + tokenPath + `}]}`, `{volumeMounts: [{name: a, mountPath: /a}, {name: b, mountPath: /b}]}`, "/volumeMounts"},
		"again: resources":                     {again, `{resources: {limits: {cpu: 1}}}`, `{}`, "/resources"},
		"again: a second limit":                {again, `{resources: {limits: {cpu: 1, memory: 1Gi}}}`, `{resources: {limits: {cpu: 1}}}`, "/resources/limits/memory"},
		"again: limits":                        {again, `{resources: {limits: {cpu: 1}, requests: {cpu: 1}}}`, `{resources: {requests: {cpu: 1}}}`, "/resources/limits"},
		"again: requests that are the limits":  {again, `{resources: {limits: {cpu: 1}, requests: {cpu: 1}}}`, `{resources: {limits: {cpu: 1}}}`, "none"},
		"again: requests less than the limits": {again, `{resources: {limits: {cpu: 2}, requests: {cpu: 1}}}`, `{resources: {limits: {cpu: 2}}}`, "/resources/requests"},
		"again: defaults":                      {again, `{imagePullPolicy: Always, terminationMessagePath: /dev/termination-log}`, `{}`, "none"},
		// Stored: fields that the API server may drop.
		"a gated field":                     {drift.Comparison{}, gated, `{lifecycle: {}}`, "/lifecycle/stopSignal"},
		"stored: a gated field":             {stored, gated, `{lifecycle: {}}`, "none"},
		"a gated field of the template":     {drift.Comparison{}, `{lifecycle: {}}`, gated, "none"},
		"stored: an object of gated fields": {stored, gated, `{}`, "none"},
		"an object of gated fields":         {drift.Comparison{}, `{}`, gated, "none"},
		"stored: another value":             {stored, gated, `{lifecycle: {stopSignal: SIGUSR2}}`, "/lifecycle/stopSignal"},
		"stored: another field":             {stored, `{workingDir: /x}`, `{}`, "/workingDir"},
		// Unfinished: what the pod lacks can be added.
		"unfinished: an absent scalar":   {unfinished, `{}`, `{image: a}`, "none"},
		"unfinished: another scalar":     {unfinished, `{image: b}`, `{image: a}`, "/image"},
		"unfinished: an absent item":     {unfinished, `{env: [{name: A}]}`, `{env: [{name: A}, {name: B}]}`, "none"},
		"unfinished: an additional item": {unfinished, `{env: [{name: A}, {name: C}]}`, `{env: [{name: A}]}`, "/env/1"},
		// Besides: what other templates add.
		"besides: a scalar":               {besides(`{stopSignal: x, workingDir: /x}`), `{workingDir: /x}`, `{}`, "none"},
		"besides: another scalar":         {besides(`{workingDir: /y}`), `{workingDir: /x}`, `{}`, "/workingDir"},
		"besides: two templates":          {besides(`{workingDir: /y}`, `{workingDir: /x}`), `{workingDir: /x}`, `{}`, "none"},
		"besides: a unit of its own":      {besides(`{livenessProbe: {tcpSocket: {port: 1}, periodSeconds: 7}}`), `{livenessProbe: {tcpSocket: {port: 1}, periodSeconds: 7}}`, `{livenessProbe: {tcpSocket: {port: 1}}}`, "/livenessProbe/periodSeconds"},
		"besides: an item":                {besides(`{env: [{name: B, value: b}]}`), `{env: [{name: A, value: a}, {name: B, value: b}]}`, `{env: [{name: A, value: a}]}`, "none"},
		"besides: an item of another one": {besides(`{env: [{name: B, value: c}]}`), `{env: [{name: A, value: a}, {name: B, value: b}]}`, `{env: [{name: A, value: a}]}`, "/env/1"},
		"besides: an item with more":      {besides(`{volumeMounts: [{name: b, mountPath: /b}]}`), `{volumeMounts: [{name: b, mountPath: /b, readOnly: true}]}`, `{}`, "/volumeMounts/0"},
		"besides: an item twice":          {besides(`{env: [{name: B, value: b}]}`), `{env: [{name: A, value: a}, {name: B, value: b}, {name: B, value: b}]}`, `{env: [{name: A, value: a}]}`, "/env/2"},
		"besides: a list":                 {besides(`{env: [{name: B, value: b}]}`), `{env: [{name: B, value: b}]}`, `{}`, "none"},
		"besides: more than a list":       {besides(`{env: [{name: B, value: b}]}`), `{env: [{name: B, value: b}, {name: C}]}`, `{}`, "/env/1"},
		"besides: an object":              {besides(`{securityContext: {privileged: true}}`), `{securityContext: {privileged: true}}`, `{}`, "none"},
		"besides: more than an object":    {besides(`{securityContext: {privileged: true}}`), `{securityContext: {privileged: true, runAsUser: 0}}`, `{}`, "/securityContext/runAsUser"},
		"besides: an equal list":          {besides(`{args: [x]}`), `{args: [x]}`, `{}`, "none"},
		"besides: a list in order":        {besides(`{args: [x]}`), `{args: [x, y]}`, `{}`, "/args"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := placeOf(inContainer(c.of).FindDifference(parseYAML(t, c.pod), parseYAML(t, c.fragment))); got != c.want {
				t.Errorf("the difference of\n%s and\n%s is at %s, want %s", c.pod, c.fragment, got, c.want)
			}
		})
	}
}

// TestHostPorts checks that the host ports that the API server sets on the node's network are no difference.
func TestHostPorts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		onHost              bool
		pod, fragment, want string
	}{
		"on the host":             {true, `{ports: [{containerPort: 1, hostPort: 1}]}`, `{ports: [{containerPort: 1}]}`, "none"},
		"another port":            {true, `{ports: [{containerPort: 1, hostPort: 2}]}`, `{ports: [{containerPort: 1}]}`, "/ports/0/hostPort"},
		"not on the host":         {false, `{ports: [{containerPort: 1, hostPort: 1}]}`, `{ports: [{containerPort: 1}]}`, "/ports/0/hostPort"},
		"not set yet":             {true, `{ports: [{containerPort: 1}]}`, `{ports: [{containerPort: 1, hostPort: 1}]}`, "none"},
		"not set, but not on it":  {false, `{ports: [{containerPort: 1}]}`, `{ports: [{containerPort: 1, hostPort: 1}]}`, "/ports/0/hostPort"},
		"another that is not set": {true, `{ports: [{containerPort: 1}]}`, `{ports: [{containerPort: 1, hostPort: 2}]}`, "/ports/0/hostPort"},
	} {
		of := inContainer(drift.Comparison{})
		of.Pod.OnHost = c.onHost
		if got := placeOf(of.FindDifference(parseYAML(t, c.pod), parseYAML(t, c.fragment))); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestFindBesideOthers checks what other webhooks may add to a field of all containers: items of some lists, and what hardens a
// container.
func TestFindBesideOthers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ field, pod, fragment, want string }{
		"a variable":                      {"env", `[{name: X}, {name: A, value: a}]`, `[{name: A, value: a}]`, "none"},
		"a variable that differs":         {"env", `[{name: A, value: b}]`, `[{name: A, value: a}]`, "/env/0/value"},
		"a variable that is missing":      {"env", `[{name: X}]`, `[{name: A, value: a}]`, "/env/-"},
		"only variables of others":        {"env", `[{name: X}]`, "", "none"},
		"a variable twice":                {"env", `[{name: A, value: a}, {name: A, value: b}]`, `[{name: A, value: a}]`, "/env/1"},
		"a source of variables":           {"envFrom", `[{configMapRef: {name: x}}, {configMapRef: {name: a}}, {configMapRef: {name: y}}]`, `[{configMapRef: {name: a}}]`, "none"},
		"sources in another order":        {"envFrom", `[{configMapRef: {name: b}}, {configMapRef: {name: a}}]`, `[{configMapRef: {name: a}}, {configMapRef: {name: b}}]`, "/envFrom/-"},
		"the same source twice":           {"envFrom", `[{configMapRef: {name: a}}]`, `[{configMapRef: {name: a}}, {configMapRef: {name: a}}]`, "/envFrom/-"},
		"only sources of others":          {"envFrom", `[{configMapRef: {name: x}}]`, "", "none"},
		"a mount":                         {"volumeMounts", `[{name: x, mountPath: /x}]`, "", "none"},
		"a mount at the token's path":     {"volumeMounts", `[{name: x, mountPath: ` + tokenPath + `}]`, "", "/volumeMounts/0"},
		"an argument":                     {"args", `[x, y]`, `[x]`, "/args"},
		"the end of the log":              {"terminationMessagePolicy", `FallbackToLogsOnError`, "", "none"},
		"not the end of the log":          {"terminationMessagePolicy", `Other`, "", "/terminationMessagePolicy"},
		"the end of the log instead":      {"terminationMessagePolicy", `FallbackToLogsOnError`, `File`, "/terminationMessagePolicy"},
		"only hardening":                  {"securityContext", `{runAsNonRoot: true, readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, privileged: false, runAsUser: 1, runAsGroup: 1}`, "", "none"},
		"hardening beside":                {"securityContext", `{runAsNonRoot: true, procMount: Unmasked}`, `{procMount: Unmasked}`, "none"},
		"hardening of an object":          {"securityContext", `{capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}, seLinuxOptions: {level: s0}}`, `{}`, "none"},
		"hardening that is missing":       {"securityContext", `{}`, `{runAsNonRoot: true}`, "/securityContext/runAsNonRoot"},
		"hardening of the template's own": {"securityContext", `{runAsUser: 2}`, `{runAsUser: 1}`, "/securityContext/runAsUser"},
		"the same hardening":              {"securityContext", `{runAsUser: 1}`, `{runAsUser: 1}`, "none"},
		"root":                            {"securityContext", `{runAsUser: 0}`, "", "/securityContext"},
		"the group of root":               {"securityContext", `{runAsGroup: 0}`, `{}`, "/securityContext/runAsGroup"},
		"not only non-root":               {"securityContext", `{runAsNonRoot: false}`, `{}`, "/securityContext/runAsNonRoot"},
		"a writable file system":          {"securityContext", `{readOnlyRootFilesystem: false}`, `{}`, "/securityContext/readOnlyRootFilesystem"},
		"privileges":                      {"securityContext", `{privileged: true}`, `{}`, "/securityContext/privileged"},
		"an escalation":                   {"securityContext", `{allowPrivilegeEscalation: true}`, `{}`, "/securityContext/allowPrivilegeEscalation"},
		"more capabilities":               {"securityContext", `{capabilities: {add: [CHOWN]}}`, `{}`, "/securityContext/capabilities"},
		"more and fewer capabilities":     {"securityContext", `{capabilities: {add: [CHOWN], drop: [ALL]}}`, `{}`, "/securityContext/capabilities"},
		"no profile":                      {"securityContext", `{seccompProfile: {type: Unconfined}}`, `{}`, "/securityContext/seccompProfile"},
		"a profile of a file":             {"securityContext", `{seccompProfile: {type: RuntimeDefault, localhostProfile: x}}`, `{}`, "/securityContext/seccompProfile"},
		"another type of SELinux":         {"securityContext", `{seLinuxOptions: {type: spc_t}}`, `{}`, "/securityContext/seLinuxOptions"},
		"an unknown field":                {"securityContext", `{invented: true}`, `{}`, "/securityContext/invented"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object := func(value string) *jsontree.Node {
				if value == "" {
					return parseYAML(t, "{}")
				}
				return parseYAML(t, "{"+c.field+": "+value+"}")
			}
			if got := placeOf(inContainer(drift.Comparison{}).FindBesideOthers(c.field, object(c.pod), object(c.fragment))); got != c.want {
				t.Errorf("the difference of\n%s and\n%s is at %s, want %s", c.pod, c.fragment, got, c.want)
			}
		})
	}
}

// TestFindProtected checks what other webhooks may add to a field that a template protects: with all, the same as to fields of other
// containers, except another user. A field that the template names must keep its value.
func TestFindProtected(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ protect, pod, fragment, want string }{
		"all: a variable of others":  {"all", `{env: [{name: X}]}`, `{}`, ""},
		"all: hardening":             {"all", `{securityContext: {runAsNonRoot: true}}`, `{}`, ""},
		"all: another user":          {"all", `{securityContext: {runAsUser: 1}}`, `{}`, "/securityContext"},
		"all: another group":         {"all", `{securityContext: {runAsGroup: 1}}`, `{}`, "/securityContext"},
		"all: another level":         {"all", `{securityContext: {seLinuxOptions: {level: s0}}}`, `{}`, "/securityContext"},
		"all: resources":             {"all", `{resources: {limits: {cpu: 2}}}`, `{resources: {limits: {cpu: 1}}}`, ""},
		"all: each field once":       {"all", `{image: b, workingDir: /x}`, `{image: a, tty: true}`, "/image /tty /workingDir"},
		"env: a variable of others":  {"env", `{env: [{name: X}]}`, `{}`, "/env"},
		"env: an image":              {"env", `{image: b}`, `{image: a}`, ""},
		"securityContext: hardening": {"securityContext", `{securityContext: {runAsNonRoot: true}}`, `{}`, "/securityContext"},
		"all and env: a variable":    {"all, env", `{env: [{name: X}], ports: [{containerPort: 1}]}`, `{}`, "/env"},
		"resources: another limit":   {"resources", `{resources: {limits: {cpu: 2}}}`, `{resources: {limits: {cpu: 1}}}`, "/resources/limits/cpu"},
		"image: what the pod lacks":  {"image", `{}`, `{image: a, tty: true}`, "/image"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, problems := templates.Parse("t", []byte(`{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: t}, spec: {
				pod: {spec: {containers: [{name: t, image: "t:1", env: [{name: A}], securityContext: {privileged: false}, resources: {limits: {cpu: 1}}}]}}, validate: {protect: [`+c.protect+`]}}}`))
			if len(problems) > 0 {
				t.Fatal(problems.Error())
			}
			var all []string
			add := func(d *drift.Difference) {
				if d != nil {
					all = append(all, d.At)
				}
			}
			inContainer(drift.Comparison{}).FindEachProtected(found[0], parseYAML(t, c.pod), parseYAML(t, c.fragment), add)
			slices.Sort(all)
			if got := strings.Join(all, " "); got != c.want {
				t.Errorf("%s differs from %s at %q, want %q", c.pod, c.fragment, got, c.want)
			}
		})
	}
}

// TestFindAtPath checks that only what is at or below a path counts.
func TestFindAtPath(t *testing.T) {
	t.Parallel()
	pod, fragment := parseYAML(t, `{image: b, resources: {limits: {cpu: 2, memory: 1Gi}}}`), parseYAML(t, `{image: a, resources: {limits: {cpu: 1, memory: 1Gi}}}`)
	for path, want := range map[string]string{
		"": "/image", "image": "/image", "resources": "/resources/limits/cpu", "resources limits cpu": "/resources/limits/cpu",
		"resources limits memory": "none", "resources requests": "none", "env": "none", "image below": "none",
	} {
		if got := placeOf(inContainer(drift.Comparison{}).FindAtPath(pod, fragment, strings.Fields(path))); got != want {
			t.Errorf("%q: %s, want %s", path, got, want)
		}
	}
}
