// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/cel"
)

// Problem is a reason why a template cannot be expressed as a policy.
type Problem struct {
	Template string `json:"template"`
	Path     string `json:"path"`
	Message  string `json:"message"`
}

// Problems are all reasons why a template cannot be expressed. They implement error.
type Problems []Problem //nolint:errname // a list of what is wrong, and only then an error

// Error returns one line for each problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = fmt.Sprintf("template %s: %s: %s", p[i].Template, p[i].Path, p[i].Message)
	}
	return strings.Join(lines, "\n")
}

// builder collects the policy of one template.
type builder struct {
	set       *templates.Set
	t         *templates.Template
	excluded  []string // namespaces
	problems  Problems
	variables []admissionregistrationv1.Variable
	condition string // the template's, if matchConditions cannot express it

	conditionParams []string // parameters that the condition reads
	ownLists        []string // lists of containers that expressions read
}

func (b *builder) addProblem(path, format string, args ...any) {
	p := Problem{b.t.Name, path, fmt.Sprintf(format, args...)}
	if !slices.Contains(b.problems, p) {
		b.problems = append(b.problems, p)
	}
}

// reportReplacement reports a template that replaces another one, or is replaced by one. CEL has no hash to select
// workloads, and a policy does not know whether the other template can be injected.
func (b *builder) reportReplacement() {
	if b.t.Spec.Replaces != "" {
		b.addProblem("spec.replaces", "a policy cannot select a share of the workloads, or fall back to %s", b.t.Spec.Replaces)
	}
	for _, other := range b.set.Templates {
		if other.Spec.Replaces == b.t.Name && other.Namespace == b.t.Namespace {
			b.addProblem("metadata.name", "a policy cannot leave out the workloads in which %s replaces this template", other.Name)
		}
	}
}

// rewriteAt rewrites an expression for the API server. If that is not possible, it records a problem.
func (b *builder) rewriteAt(path string, e *cel.Expression) rewritten {
	if e.ReadsPodName() {
		b.addProblem(path, "a policy cannot distinguish the name of a pod from one that the API server generates later")
	}
	r, err := rewriteExpression(e, b.t.OptionalParams())
	if err != nil {
		b.addProblem(path, "%v", err)
		return rewritten{text: "false", typ: e.Type()}
	}
	b.ownLists = append(b.ownLists, r.ownLists...)
	return r
}

// declareVariable declares variables.<name>.
func (b *builder) declareVariable(name, expression string) {
	b.variables = append(b.variables, admissionregistrationv1.Variable{Name: name, Expression: expression})
}
