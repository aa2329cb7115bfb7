// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// The API server accepts containers that the kubelet never starts, or whose probes and hooks it never runs. The
// functions in this file find such mistakes in a single container. They are used for a template alone and, together
// with what the pod has, also for the final container. The module e2e/validity compares them with the kubelet's own code.

// ContainerFault is a reason why the kubelet cannot run a container.
type ContainerFault struct {
	// Field is the place in the container, for example startupProbe.
	Field string
	// Message says what is wrong, and what to do.
	Message string
	// Nodes are the field and the objects around it. One of them is new if a template has added the field.
	Nodes []*jsontree.Node
}

// firstFault returns the first of a container's faults as an error.
func firstFault(all []ContainerFault) error {
	if len(all) == 0 {
		return nil
	}
	return errors.New(all[0].Message)
}

// imagePattern is the grammar of an image's name (github.com/distribution/reference), as far as it can be a regular
// expression.
const imagePattern = `^((([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])(\.([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))*|\[[a-fA-F0-9:]+\])(:[0-9]+)?/)?` +
	`[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*(:[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127})?(@(sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128}))?$`

// isImage rejects names that the kubelet rejects (InvalidImageName, pkg/kubelet/images).
var isImage = textRule("VALUE.matches("+strconv.Quote(imagePattern)+")", regexp.MustCompile(imagePattern).MatchString,
	"%q is not the name of an image, which is HOST/PATH:TAG in lower case")

// isWorkingDir rejects relative paths, with which a container runtime does not start a container. Paths of Windows may begin
// with a drive.
var isWorkingDir = textRule(`VALUE == "" || VALUE.matches("^/|[:\\\\]")`, func(s string) bool { return s == "" || path.IsAbs(s) || strings.ContainsAny(s, `:\`) },
	"%q must be an absolute path; otherwise, the container cannot start")

// LeastMemory is less than any container runtime needs to start a container, in bytes. What is below is a typing error,
// for example 64 or 100m.
const LeastMemory = 1 << 20

// enoughMemory rejects a memory limit with which no container starts. A limit of 0 means none.
func enoughMemory(n *jsontree.Node) error {
	limit := n.At("limits", "memory")
	if limit == nil {
		return nil
	}
	if q, err := quantityOf(limit); err == nil && !q.IsZero() && q.CmpInt64(LeastMemory) < 0 {
		return fmt.Errorf("the memory limit is %s, in bytes, and no container starts with less than 1Mi; did you leave out the unit Mi?", q.String())
	}
	return nil
}

// ReservedPath returns why no volume can be mounted at a path of the container runtime, or "". Path is an absolute clean
// path. A directory of the node may have what containers need there.
func ReservedPath(path string) string {
	switch {
	case path == "/":
		return "a volume at / hides the container's own files"
	case path == "/dev":
		return "a volume at /dev hides the container's devices"
	case path == "/proc", strings.HasPrefix(path, "/proc/") && !slices.Contains(allowedInProc(), path):
		return "container runtimes allow no volume in /proc"
	}
	return ""
}

// allowedInProc returns the files that may be mounted in /proc (checkProcMount in opencontainers/runc).
func allowedInProc() []string {
	return []string{
		"/proc/cpuinfo", "/proc/diskstats", "/proc/meminfo", "/proc/stat", "/proc/swaps", "/proc/uptime", "/proc/loadavg", "/proc/slabinfo",
		"/proc/sys/kernel/ns_last_pid", "/proc/sys/crypto/fips_enabled",
	}
}

// startRules returns the rules for a container of the template.
func startRules() []ObjectRule {
	return []ObjectRule{
		ofKubelet([]string{
			"ports.name", "startupProbe.httpGet.port", "startupProbe.tcpSocket.port", "readinessProbe.httpGet.port", "readinessProbe.tcpSocket.port",
			"livenessProbe.httpGet.port", "livenessProbe.tcpSocket.port", "lifecycle.postStart.httpGet.port", "lifecycle.preStop.httpGet.port",
		}, func(n *jsontree.Node) error { return firstFault(UnknownPorts(n)) }),
		ofKubelet([]string{"volumeMounts.subPathExpr", "env", "envFrom", "resources"}, func(n *jsontree.Node) error { return firstFault(UnusableSubPaths(n, true, isPresent, isPresent)) }),
	}
}

// notAsRoot returns the rule for a security context alone.
func notAsRoot() ObjectRule {
	return ofKubelet([]string{"runAsNonRoot", "runAsUser"}, func(n *jsontree.Node) error {
		if user := n.Get("runAsUser"); isTrue(n.Get("runAsNonRoot")) && user != nil && user.String() == "0" {
			return errors.New("runAsNonRoot: true and runAsUser: 0 exclude each other; the kubelet does not start such a container")
		}
		return nil
	})
}

// UnknownPorts returns the probes and hooks of a container that name a port that it does not declare. The kubelet
// resolves names in the container's own ports only (pkg/probe/util.go): it never runs such a probe, so it takes a
// container with such a startupProbe or readinessProbe for one that is not ready, and stops a container with such a
// postStart hook.
func UnknownPorts(container *jsontree.Node) (all []ContainerFault) {
	check := func(field, action string, nodes ...*jsontree.Node) {
		port := nodes[0].At(action, "port")
		if port.Kind() != jsontree.String {
			return
		}
		ports := container.Get("ports").Items()
		if slices.ContainsFunc(ports, func(p jsontree.Node) bool { return p.Get("name").IsText(port.Text()) }) {
			return
		}
		all = append(all, ContainerFault{field, fmt.Sprintf("%s names the port %q, which the container does not declare, so the kubelet cannot use it; write the number of the port", field, port.Text()), nodes})
	}
	for _, probe := range [...]string{"startupProbe", "readinessProbe", "livenessProbe"} {
		if p := container.Get(probe); p != nil {
			check(probe, "httpGet", p)
			check(probe, "tcpSocket", p)
		}
	}
	lifecycle := container.Get("lifecycle")
	for _, hook := range [...]string{"postStart", "preStop"} {
		if h := lifecycle.Get(hook); h != nil {
			check("lifecycle."+hook, "httpGet", h, lifecycle)
		}
	}
	return all
}

// UnusableSubPaths returns the mounts of a container whose subPathExpr has no value, or a value that is not a relative
// path. The kubelet does not create such a container (ExpandContainerVolumeMounts in pkg/kubelet/container/helpers.go,
// and makeMounts in pkg/kubelet/kubelet_pods.go). ServiceLinks reports whether the container may get variables for
// Services. A variable whose value only the node knows counts as right. Concerns selects the mounts, and counts
// the variables in env, and envFrom.
func UnusableSubPaths(container *jsontree.Node, serviceLinks bool, concerns, counts func(item *jsontree.Node) bool) (all []ContainerFault) {
	mounts := container.Get("volumeMounts").Items()
	var known map[string]string
	var may func(string) bool
	for i := range mounts {
		expr := mounts[i].Get("subPathExpr").Text()
		if expr == "" || !concerns(&mounts[i]) {
			continue
		}
		if known == nil {
			may = mayGetVariable(container, serviceLinks, counts)
			known = knownVariables(container, may, counts)
		}
		if why := whyUnusablePath(expr, known, may); why != "" {
			all = append(all, ContainerFault{"volumeMounts", fmt.Sprintf("the subPathExpr of the mount at %s %s", mounts[i].Get("mountPath").Text(), why), []*jsontree.Node{&mounts[i]}})
		}
	}
	return all
}

// ExpandSubPath returns the value of a mount's subPathExpr. Known is false if only the node knows all of it; the path then contains
// a question mark for what is not known. ServiceLinks is as for [UnusableSubPaths].
func ExpandSubPath(container, mount *jsontree.Node, serviceLinks bool) (path string, known bool) {
	expr := mount.Get("subPathExpr").Text()
	if expr == "" {
		return "", true
	}
	may := mayGetVariable(container, serviceLinks, isPresent)
	variables := knownVariables(container, may, isPresent)
	path, ok := expandVariables(expr, func(name string) string {
		if value, there := variables[name]; there {
			return value
		}
		return someText
	})
	return path, ok && !strings.Contains(path, someText)
}

// someText stands for a part of a value that only the node knows. It is no path element, and may be empty.
const someText = "?"

// whyUnusablePath returns what is wrong with an expression for a sub path, or "".
func whyUnusablePath(expr string, variables map[string]string, may func(string) bool) (why string) {
	var missing string
	text, ok := expandVariables(expr, func(name string) string {
		value, there := variables[name]
		switch {
		case !there && may(name):
			return someText
		case value == "" && missing == "":
			missing = name
		}
		return value
	})
	switch {
	case missing != "":
		return fmt.Sprintf("reads the variable %s, which has no value in this container, so the kubelet does not create the container; set it in env", missing)
	case !ok:
	case path.IsAbs(text):
		return fmt.Sprintf("gives %s, which must be a relative path; otherwise, the kubelet does not create the container", text)
	case slices.Contains(strings.Split(text, "/"), ".."):
		return fmt.Sprintf("gives %s, which must not contain ..; otherwise, the kubelet does not create the container", text)
	}
	return ""
}

// knownVariables returns the variables in the container's env, as the kubelet makes them
// (makeEnvironmentVariables in pkg/kubelet/kubelet_pods.go). They contain someText for what is not known.
func knownVariables(container *jsontree.Node, may func(string) bool, counts func(*jsontree.Node) bool) map[string]string {
	env := container.Get("env").Items()
	all := make(map[string]string, len(env))
	for i := range env {
		if !counts(&env[i]) {
			continue
		}
		name, value := env[i].Get("name").Text(), env[i].Get("value").Text()
		if value != "" {
			expanded, ok := expandVariables(value, func(other string) string {
				earlier, there := all[other]
				switch {
				case there:
					return earlier
				case may(other):
					return someText
				}
				return "$(" + other + ")"
			})
			if value = expanded; !ok {
				value = someText
			}
		} else if from := env[i].Get("valueFrom"); from != nil && from.Kind() != jsontree.Null {
			value = someText
		}
		all[name] = value
	}
	return all
}

var serviceVariable = regexp.MustCompile(`^[A-Z0-9_]+_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// mayGetVariable returns a function that reports whether a container may have a variable that its env does not name:
// from envFrom, for a Service, or from the plugin of a device.
func mayGetVariable(container *jsontree.Node, serviceLinks bool, counts func(*jsontree.Node) bool) func(name string) bool {
	extended := func(m jsontree.Node) bool { return strings.Contains(m.Name(), "/") }
	resources := container.Get("resources")
	from := container.Get("envFrom")
	if len(from.Items()) > 0 && counts(from) || len(resources.Get("claims").Items()) > 0 || slices.ContainsFunc(resources.Get("limits").Members(), extended) {
		return func(string) bool { return true }
	}
	return func(name string) bool {
		return serviceVariable.MatchString(name) && (serviceLinks || strings.HasPrefix(name, "KUBERNETES_"))
	}
}

// longestPath is the maximum length of a path on Linux (PATH_MAX). What is longer is not expanded, because a few
// variables that read each other could otherwise fill the memory.
const longestPath = 4096

// expandVariables replaces $(NAME) by the value of the variable, and $$ by $ (third_party/forked/golang/expansion in
// k8s.io/kubernetes). It returns ok false if the result is too long.
func expandVariables(text string, value func(name string) string) (expanded string, ok bool) {
	var b strings.Builder
	closed := true // whether a bracket may close what the next one opens
	for b.Len()+len(text) <= longestPath {
		at := strings.IndexByte(text, '$')
		if at < 0 || at+1 == len(text) {
			b.WriteString(text)
			return b.String(), true
		}
		b.WriteString(text[:at])
		rest, end := text[at+1:], -1
		if closed && rest[0] == '(' {
			end = strings.IndexByte(rest, ')')
			closed = end > 0
		}
		switch {
		case end > 0:
			b.WriteString(value(rest[1:end]))
			text = rest[end+1:]
		case rest[0] == '$':
			b.WriteByte('$')
			text = rest[1:]
		default:
			b.WriteString(text[at : at+2])
			text = rest[1:]
		}
	}
	return "", false
}
