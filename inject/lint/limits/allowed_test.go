// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	psa "k8s.io/pod-security-admission/api"

	"github.com/pillion-dev/pillion/inject/lint/sample"
	"github.com/pillion-dev/pillion/inject/testing/size"
	"github.com/pillion-dev/pillion/templates"
)

// settableParams are the parameters of random templates, by how they are declared.
var settableParams = []string{
	"{name: flag, type: boolean, default: false}",
	"{name: other, type: boolean, default: true}",
	"{name: fixed, type: boolean, default: false, overridableBy: []}",
	"{name: namespaced, type: boolean, default: false, overridableBy: [Namespace]}",
	"{name: mode, enum: [info, debug, trace], default: info}",
	"{name: word, default: info, pattern: 'info|debug'}",
	"{name: text, default: info}",
	"{name: maybe, optional: true}",
	"{name: uid, type: integer, default: 1000}",
	"{name: user, type: integer, default: 1000, minimum: 1, maximum: 100000}",
	"{name: few, type: integer, default: 1, minimum: 0, maximum: 3}",
	"{name: caps, type: list, default: ''}",
	"{name: some, type: list, default: '', items: {enum: [NET_BIND_SERVICE, NET_ADMIN]}}",
	"{name: netcaps, type: list, default: '', items: {pattern: 'NET_[A-Z_]+'}}",
	"{name: pairs, type: map, default: ''}",
	"{name: object, type: json, default: '{}'}",
}

// pick returns one of the strings.
func pick(r *rand.Rand, all ...string) string { return all[r.IntN(len(all))] }

// randomBool returns an expression of the type bool.
func randomBool(r *rand.Rand, depth int) string {
	if depth > 0 && r.IntN(3) == 0 {
		a, b := randomBool(r, depth-1), randomBool(r, depth-1)
		return pick(r, "("+a+" && "+b+")", "("+a+" || "+b+")", "!("+a+")", "("+a+" ? "+b+" : !("+b+"))")
	}
	return pick(r, "params.flag", "params.other", "params.fixed", "params.namespaced", "params.mode == 'debug'", "params.mode.startsWith('t')", "params.word != 'info'",
		"params.text == 'debug'", "params.text.size() > 4", "params.text.startsWith('x')", "has(params.maybe)", "params.?maybe.orValue('no') == 'yes'", "params.uid < 500",
		"params.few == 2", "params.few * 3 > 7", "params.caps.size() > 0", "'NET_ADMIN' in params.some", "params.pairs.size() == 2", "params.pairs[?'root'].orValue('no') == 'yes'",
		"pod.spec.containers.size() == 1", "pod.spec.containers.size() > 5", "true", "variables.debug")
}

func randomLeaf(r *rand.Rand, values ...string) string {
	a, b := values[r.IntN(len(values))], values[r.IntN(len(values))]
	return pick(r, a, b, "${"+randomBool(r, 1)+" ? optional.of("+quoteCEL(a)+") : optional.none()}", "${"+randomBool(r, 1)+" ? "+quoteCEL(a)+" : "+quoteCEL(b)+"}")
}

// quoteCEL returns a value of a field, which may be an expression, as CEL.
func quoteCEL(value string) string {
	if inner, ok := strings.CutPrefix(value, "${"); ok {
		return "(" + strings.TrimSuffix(inner, "}") + ")"
	}
	if strings.HasPrefix(value, "[") || value == "true" || value == "false" || strings.Trim(value, "0123456789") == "" {
		return strings.ReplaceAll(strings.ReplaceAll(value, "[", "['"), "]", "']")
	}
	return "'" + value + "'"
}

// randomSecurity returns the fields of a securityContext, most of them as restricted needs them.
func randomSecurity(r *rand.Rand) string {
	fields := []string{}
	add := func(of int, name, usual string, other func() string) {
		if r.IntN(of) == 0 {
			usual = other()
		}
		if usual != "" {
			fields = append(fields, fmt.Sprintf("%s: %s", name, usual))
		}
	}
	boolean := func() string { return quoteYAML("${" + randomBool(r, 2) + "}") }
	add(3, "privileged", "", boolean)
	add(3, "allowPrivilegeEscalation", "false", boolean)
	add(4, "runAsNonRoot", "true", boolean)
	add(3, "runAsUser", "", func() string {
		return quoteYAML(randomLeaf(r, "${params.uid}", "${params.user}", "${params.few}", "1000", "0", "${params.uid + 1}", "${params.few * 10}"))
	})
	add(3, "seccompProfile", "{type: RuntimeDefault}", func() string {
		return "{type: " + quoteYAML(randomLeaf(r, "${params.text}", "RuntimeDefault", "Unconfined", "${params.?maybe.orValue('RuntimeDefault')}")) + "}"
	})
	add(4, "procMount", "", func() string { return quoteYAML(randomLeaf(r, "Default", "Unmasked", "${params.text}")) })
	add(4, "seLinuxOptions", "", func() string {
		return "{type: " + quoteYAML(randomLeaf(r, "container_t", "spc_t", "${params.word}")) + "}"
	})
	add(3, "capabilities", "{drop: [ALL]}", func() string {
		return "{drop: [ALL], add: " + quoteYAML(randomLeaf(r, "${params.caps}", "${params.some}", "${params.netcaps}", "${params.caps + params.some}", "${params.caps.map(c, 'NET_' + c)}",
			"${params.flag ? ['SYS_TIME'] : params.some}", "${[params.text]}")) + "}"
	})
	if r.IntN(8) == 0 {
		return quoteYAML("${" + randomBool(r, 1) + " ? {'privileged': " + randomBool(r, 1) + "} : {'allowPrivilegeEscalation': false}}")
	}
	when := ""
	if r.IntN(6) == 0 {
		when = "'${when}': " + quoteYAML(randomBool(r, 1)) + ", "
	}
	return "{" + when + strings.Join(fields, ", ") + "}"
}

// quoteYAML quotes a string with an expression.
func quoteYAML(text string) string {
	if strings.ContainsAny(text, "${}'\" ") {
		return fmt.Sprintf("%q", text)
	}
	return text
}

// randomExposed returns a template whose parameters decide about its security.
func randomExposed(r *rand.Rand) string {
	var containers, volumes []string
	for i := range 1 + r.IntN(2) {
		control, name := "", fmt.Sprintf("c%d", i)
		switch r.IntN(5) {
		case 0:
			control = "'${when}': " + quoteYAML(randomBool(r, 1)) + ", "
		case 1:
			control = "'${forEach}': {m: " + quoteYAML(pick(r, "params.caps", "params.some", "['a', 'b']", "params.flag ? ['x'] : []")) + "}, "
			name += "-${m.lowerAscii().replace('_', '-')}"
		}
		port := ""
		if r.IntN(4) == 0 {
			port = ", ports: [{containerPort: 80, hostPort: " + quoteYAML(randomLeaf(r, "${params.few}", "${params.user}", "80")) + "}]"
			if r.IntN(2) == 0 {
				port = ", readinessProbe: {tcpSocket: {port: 80, host: " + quoteYAML(randomLeaf(r, "${params.text}", "${params.?maybe.orValue('')}", "localhost")) + "}}"
			}
		}
		containers = append(containers, fmt.Sprintf("{%sname: %s, image: i, securityContext: %s%s}", control, quoteYAML(name), randomSecurity(r), port))
	}
	for i := range r.IntN(2) {
		volumes = append(volumes, fmt.Sprintf("{'${when}': %s, name: v%d, hostPath: {path: /}}", quoteYAML(randomBool(r, 2)), i))
	}
	each := ""
	if r.IntN(3) == 0 {
		each = ", forEachContainer: [{where: " + quoteYAML(randomBool(r, 1)) + ", add: {securityContext: {capabilities: {add: [" + quoteYAML(pick(r, "NET_ADMIN", "${params.text}", "CHOWN")) + "]}}}}]"
	}
	return fmt.Sprintf("{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: x}, spec: {params: [%s], variables: [{name: debug, expression: %q}], pod: {spec: {containers: [%s], volumes: [%s]}}%s}}",
		strings.Join(settableParams, ", "), pick(r, "params.mode == 'debug'", "params.flag && params.text == 'x'", "params.few > 2"), strings.Join(containers, ", "), strings.Join(volumes, ", "), each)
}

// randomSettings returns values of some parameters that may be valid.
func randomSettings(r *rand.Rand, t *templates.Template) sample.Settings {
	all := sample.Settings{}
	for i := range t.Spec.Params {
		p := &t.Spec.Params[i]
		if !sample.IsSettable(p) || r.IntN(2) == 0 {
			continue
		}
		value := pick(r, "true", "false", "0", "1", "2", "3", "00", "-0", "1000", "debug", "info", "trace", "x", "yes", "no", "Unconfined", "Unmasked", "spc_t", "NET_ADMIN", "NET_RAW,NET_ADMIN",
			"SYS_ADMIN", "CHOWN", "ADMIN", "root=yes", "a=1,b=2", "NET_BIND_SERVICE", "NET_X", "{}", "debugging", "192.0.2.1", "")
		if t.Takes(p.Name, value) == nil {
			all[p.Name] = sample.Setting{Value: value}
		}
	}
	return all
}

// TestAllowsWorst checks that no values of parameters make a pod violate a Pod Security level that lint reports as kept: for random
// templates and random values, the level is never weaker than Trial.Worst. It also checks that all values that lint reports lead to
// what it reports.
func TestAllowsWorst(t *testing.T) {
	t.Parallel()
	e, err := NewEvaluator()
	if err != nil {
		t.Fatal(err)
	}
	tried, weaker, uncertain, certain := 0, 0, 0, 0
	for seed := range size.Choose(t, 120, 20_000) {
		r := rand.New(rand.NewPCG(7, uint64(seed)))
		text := randomExposed(r)
		found, problems := templates.Parse("x", []byte(text))
		if len(problems) > 0 {
			continue
		}
		template := found[0]
		trial := e.Try(templates.NewSet(found), nil)[0]
		if trial.PodSecurity == "" {
			continue
		}
		tried++
		from := *trial.from
		before := decodePod(from.Pod)
		now := injectInto(from, template)
		for _, allowed := range trial.Allows {
			if allowed.Uncertain {
				uncertain++
				continue
			}
			certain++
			settings := sample.Settings{}
			for _, p := range allowed.Params {
				settings[p.Name] = sample.Setting{Value: p.Value, Unset: p.Unset}
			}
			to, ok := sample.SetParams(template, from, settings)
			if found := e.findViolations(now.injectAgain(to).pod, before); !ok || !slices.ContainsFunc(found, func(v violation) bool {
				return v.level == allowed.PodSecurity && strings.Contains(allowed.Why, v.reason)
			}) {
				t.Errorf("%s\n%v: does not lead to %s, but to %v", text, settings, allowed.Why, found)
			}
		}
		for range 25 {
			settings := randomSettings(r, template)
			to, ok := sample.SetParams(template, from, settings)
			if !ok {
				continue
			}
			injected := now.injectAgain(to)
			if !injected.Decisions[0].Code.Succeeded() {
				continue
			}
			all := e.findViolations(injected.pod, before)
			if level := worstLevel(all); psa.CompareLevels(level, trial.Worst) < 0 {
				t.Errorf("%s\n%v: the level is %s, %v, but lint reports %s, %v", text, settings, level, all, trial.Worst, trial.Allows)
			} else if psa.CompareLevels(level, worstLevel(e.findViolations(now.pod, before))) < 0 {
				weaker++
			}
		}
	}
	t.Logf("%d templates, %d values that weaken the level, %d reported with values, %d without", tried, weaker, certain, uncertain)
	if tried < 50 || weaker < 100 {
		t.Errorf("%d templates and %d values that weaken the level are too few", tried, weaker)
	}
}
