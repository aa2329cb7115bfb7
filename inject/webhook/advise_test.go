// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/inject/webhook"
	"github.com/pillion-dev/pillion/templates/request"
)

// knownLimits are the limits of every namespace.
type knownLimits struct{ all limits.Limits }

func (k knownLimits) Limits(string) limits.Limits { return k.all }

func evaluator(t testing.TB) *limits.Evaluator {
	t.Helper()
	e, err := limits.NewEvaluator()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func namespaceIn(t testing.TB, text []byte) request.Namespace {
	t.Helper()
	var n request.Namespace
	if err := yaml.Unmarshal(text, &n); err != nil {
		t.Fatal(err)
	}
	n.Known = true
	return n
}

func limitsIn(t testing.TB, text []byte) (k knownLimits) {
	t.Helper()
	for document := range bytes.SplitSeq(text, []byte("---\n")) {
		var kind struct{ Kind string }
		limitRange, quota := &corev1.LimitRange{}, &corev1.ResourceQuota{}
		if err := yaml.Unmarshal(document, &kind); err != nil {
			t.Fatal(err)
		}
		var err error
		switch kind.Kind {
		case "LimitRange":
			k.all.Ranges = append(k.all.Ranges, limitRange)
			err = yaml.UnmarshalStrict(document, limitRange)
		case "ResourceQuota":
			k.all.Quotas = append(k.all.Quotas, quota)
			err = yaml.UnmarshalStrict(document, quota)
		default:
			err = fmt.Errorf("limits of kind %q", kind.Kind)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return k
}

// advised returns a review of a workload.
func advised(apiVersion, kind, operation, object, old string) []byte {
	group, version, found := strings.Cut(apiVersion, "/")
	if !found {
		group, version = "", apiVersion
	}
	return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u",
		"kind":{"group":%q,"version":%q,"kind":%q},"resource":{"group":%q,"version":%q,"resource":"any"},
		"name":"web","namespace":"shop","operation":%q,"userInfo":{"username":"user"},"object":%s,"oldObject":%s,"dryRun":true}}`,
		group, version, kind, group, version, operation, object, old)
}

const (
	misspelled = `{"metadata":{"annotations":{"pillion.dev/templates":"+log-agnet"}},"spec":{"containers":[{"name":"web","image":"nginx"}]}}`
	fine       = `{"metadata":{},"spec":{"containers":[{"name":"web","image":"nginx"}]}}`
)

// TestAdviseKinds checks the answer for each kind of workload, and for other kinds.
func TestAdviseKinds(t *testing.T) {
	t.Parallel()
	e := newEdge(load(t, sidecar))
	e.Log = discard()
	inSpec := func(template string) string {
		return `{"metadata":{"name":"web"},"spec":{"template":` + template + `}}`
	}
	inCronJob := func(template string) string {
		return `{"metadata":{"name":"web"},"spec":{"jobTemplate":{"spec":{"template":` + template + `}}}}`
	}
	controlled := func(controller string) string {
		return strings.Replace(inSpec(misspelled), `"name":"web"`, `"name":"web","ownerReferences":[{"kind":"X","name":"x"},{"kind":"Y","name":"y","controller":`+controller+`}]`, 1)
	}
	for name, row := range map[string]struct {
		apiVersion, kind, operation, object, old string
		warned                                   bool
	}{
		"Deployment":               {"apps/v1", "Deployment", "CREATE", inSpec(misspelled), "null", true},
		"Deployment of old":        {"extensions/v1beta1", "Deployment", "CREATE", inSpec(misspelled), "null", true},
		"StatefulSet":              {"apps/v1", "StatefulSet", "CREATE", inSpec(misspelled), "null", true},
		"DaemonSet":                {"apps/v1", "DaemonSet", "CREATE", inSpec(misspelled), "null", true},
		"ReplicaSet":               {"apps/v1", "ReplicaSet", "CREATE", inSpec(misspelled), "null", true},
		"ReplicationController":    {"v1", "ReplicationController", "CREATE", inSpec(misspelled), "null", true},
		"Job":                      {"batch/v1", "Job", "CREATE", inSpec(misspelled), "null", true},
		"CronJob":                  {"batch/v1", "CronJob", "CREATE", inCronJob(misspelled), "null", true},
		"nothing wrong":            {"apps/v1", "Deployment", "CREATE", inSpec(fine), "null", false},
		"owned":                    {"apps/v1", "ReplicaSet", "CREATE", controlled("true"), "null", false},
		"owned by no controller":   {"apps/v1", "ReplicaSet", "CREATE", controlled("false"), "null", true},
		"update":                   {"apps/v1", "Deployment", "UPDATE", inSpec(misspelled), inSpec(fine), true},
		"update of something else": {"apps/v1", "Deployment", "UPDATE", inSpec(misspelled), strings.Replace(inSpec(misspelled), "web", "old", 1), false},
		"update without an old":    {"apps/v1", "Deployment", "UPDATE", inSpec(misspelled), "null", true},
		"delete":                   {"apps/v1", "Deployment", "DELETE", "null", inSpec(misspelled), false},
		"pod":                      {"v1", "Pod", "CREATE", misspelled, "null", false},
		"another Deployment":       {"example.com/v1", "Deployment", "CREATE", inSpec(misspelled), "null", false},
		"no object":                {"apps/v1", "Deployment", "CREATE", "null", "null", false},
		"a list":                   {"apps/v1", "Deployment", "CREATE", "[]", "null", false},
		"no template":              {"apps/v1", "Deployment", "CREATE", `{"spec":{"template":3}}`, "null", false},
		"no spec":                  {"apps/v1", "Deployment", "CREATE", `{"spec":null}`, "null", false},
		"containers are text":      {"apps/v1", "Deployment", "CREATE", inSpec(`{"spec":{"containers":"x"}}`), "null", false},
	} {
		body := advised(row.apiVersion, row.kind, row.operation, row.object, row.old)
		r, _ := checkContract(t, webhook.PathAdvise, body, e.answer(post(t, webhook.PathAdvise, body)))
		if !r.Allowed || (len(r.Warnings) > 0) != row.warned {
			t.Errorf("%s: allowed %v, warnings %q", name, r.Allowed, r.Warnings)
		}
	}
}

// TestAdviseMisplaced checks that keys in a workload's own metadata are reported when they appear
// and when the pods change. If Pillion is called only for that reason, the workload gets no other
// advice.
func TestAdviseMisplaced(t *testing.T) {
	t.Parallel()
	e := newEdge(load(t, sidecar))
	e.Log, e.Namespaces = discard(), known{namespaceIn(t, []byte("name: shop"))}
	deployment := func(metadata, template string) string {
		return `{"metadata":{"name":"web",` + metadata + `},"spec":{"template":` + template + `}}`
	}
	const want = "misplaced: Deployment/web has pillion.dev/inject in metadata; Pillion reads spec.template.metadata"
	optedOut, optedIn := `"labels":{"pillion.dev/inject":"disabled"}`, `"labels":{"pillion.dev/inject":"enabled"}`
	unknown := strings.Replace(misspelled, `"metadata":{`, `"metadata":{`+optedIn+`,`, 1)
	for name, row := range map[string]struct {
		operation, object, old string
		want                   []string // parts of the warnings
	}{
		"create":            {"CREATE", deployment(optedOut, fine), "null", []string{want}},
		"with others":       {"CREATE", deployment(optedOut, unknown), "null", []string{want, "unknown template"}},
		"opts in":           {"CREATE", deployment(optedIn, fine), "null", []string{want}},
		"would opt in":      {"CREATE", deployment(optedIn, misspelled), "null", []string{want}},
		"opted in":          {"CREATE", deployment(optedIn, unknown), "null", []string{"unknown template"}},
		"label comes":       {"UPDATE", deployment(optedOut, fine), deployment(`"labels":{}`, fine), []string{want}},
		"pods change":       {"UPDATE", deployment(optedOut, fine), deployment(optedOut, strings.Replace(fine, "nginx", "old", 1)), []string{want}},
		"pods' labels":      {"UPDATE", deployment(optedOut, unknown), deployment(optedOut, fine), []string{want, "unknown template"}},
		"something else":    {"UPDATE", deployment(optedOut, fine), deployment(optedOut+`,"generation":1`, fine), nil},
		"label is taken":    {"UPDATE", deployment(`"labels":{}`, fine), deployment(optedOut, fine), nil},
		"nothing is wrong":  {"UPDATE", deployment(`"labels":{"app":"web"}`, fine), deployment(`"labels":{}`, fine), nil},
		"template is there": {"CREATE", deployment(optedOut, strings.Replace(fine, `"metadata":{`, `"metadata":{`+optedOut, 1)), "null", nil},
	} {
		body := advised("apps/v1", "Deployment", row.operation, row.object, row.old)
		r, _ := checkContract(t, webhook.PathAdvise, body, e.answer(post(t, webhook.PathAdvise, body)))
		ok := r.Allowed && len(r.Warnings) == len(row.want)
		for i := range r.Warnings {
			ok = ok && strings.Contains(r.Warnings[i], row.want[i]) && len(r.Warnings[i]) <= 120
		}
		if !ok {
			t.Errorf("%s: allowed %v, warnings %q, want %q", name, r.Allowed, r.Warnings, row.want)
		}
	}
	wantCount := `pillion_findings_total{code="misplaced",template="",webhook="advise"} 7`
	if got := counted(t, e.registry); !strings.Contains(got, wantCount) {
		t.Errorf("got\n%s\nwant\n%s", got, wantCount)
	}
}

// TestAdviseNamespaceNotKnownYet checks that there is no wrong advice if the namespace is not known
// yet.
func TestAdviseNamespaceNotKnownYet(t *testing.T) {
	t.Parallel()
	e := newEdge(load(t, sidecar))
	e.Namespaces = parameters{"other"}
	body := advised("apps/v1", "Deployment", "CREATE", `{"spec":{"template":`+misspelled+`}}`, "null")
	if r, _ := checkContract(t, webhook.PathAdvise, body, e.answer(post(t, webhook.PathAdvise, body))); len(r.Warnings) > 0 {
		t.Errorf("warnings %q", r.Warnings)
	}
}

// TestAdviseMany checks that the number of warnings about a workload is limited.
func TestAdviseMany(t *testing.T) {
	t.Parallel()
	e := newEdge(load(t, sidecar))
	many := strings.Replace(misspelled, "+log-agnet", "+a,+b,+c,+d,+e,+f,+g,+h,+i,+j,+k,+l,+m,+n,+o,+p,+q", 1)
	many = strings.Replace(many, `"metadata":{`, `"metadata":{"labels":{"pillion.dev/inject":"enabled"},`, 1)
	body := advised("apps/v1", "Deployment", "CREATE", `{"spec":{"template":`+many+`}}`, "null")
	r, _ := checkContract(t, webhook.PathAdvise, body, e.answer(post(t, webhook.PathAdvise, body)))
	if n := len(r.Warnings); n < 10 || strings.Contains(r.Warnings[n-1], "audit") || len(r.AuditAnnotations) > 0 {
		t.Errorf("warnings %q", r.Warnings)
	}
}

// TestAdviseAnswersEverything checks that this webhook accepts every body that the mutating webhook
// accepts.
func TestAdviseAnswersEverything(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/cases/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	e := newEdge(load(t, sidecar))
	e.Log = discard()
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range archive.Files {
			if part.Name != "body" {
				continue
			}
			// This webhook ignores objects that are not pods.
			mutate, advise := e.answer(post(t, webhook.PathMutate, part.Data)), e.answer(post(t, webhook.PathAdvise, part.Data))
			if advise.Code != mutate.Code && (advise.Code != http.StatusOK || !strings.Contains(mutate.Body.String(), "request.object is not a pod")) {
				t.Errorf("%s: %d, and from /mutate %d", file, advise.Code, mutate.Code)
			}
		}
	}
}

// TestAdviseMetrics checks what the metrics count of a call about a workload.
func TestAdviseMetrics(t *testing.T) {
	t.Parallel()
	e := newEdge(load(t, sidecar))
	body := advised("apps/v1", "Deployment", "CREATE", `{"spec":{"template":`+misspelled+`}}`, "null")
	e.answer(post(t, webhook.PathAdvise, body))
	want := `pillion_findings_total{code="unknown_template",template="",webhook="advise"} 1
pillion_webhook_requests_total{decision="warned",status="200",webhook="advise"} 1
`
	if got := counted(t, e.registry); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestAdviseAsksWhoCalls checks that callers without a valid credential are rejected.
func TestAdviseAsksWhoCalls(t *testing.T) {
	t.Parallel()
	e := newEdge(load(t, sidecar))
	guard(t, e, true)
	body := advised("apps/v1", "Deployment", "CREATE", `{"spec":{"template":`+misspelled+`}}`, "null")
	r := post(t, webhook.PathAdvise, body)
	if w := e.answer(r); w.Code != http.StatusUnauthorized {
		t.Errorf("a stranger gets %d %s", w.Code, w.Body)
	}
	r = post(t, webhook.PathAdvise, body)
	r.Header.Set("Authorization", "Bearer right-token")
	if w := e.answer(r); w.Code != http.StatusOK {
		t.Errorf("who may call gets %d %s", w.Code, w.Body)
	}
}

// FuzzAdvise checks that for any pod template, the API server accepts the answer, and the answer
// denies nothing.
func FuzzAdvise(f *testing.F) {
	for _, template := range []string{
		misspelled, fine, `{}`, `[]`, `3`, `null`, `{"spec":{"containers":[{"name":"web","resources":{"limits":{"cpu":"1e3"},"requests":{"memory":-1}}}]}}`,
		`{"spec":{"containers":[{"name":"web"}],"initContainers":[{"restartPolicy":"Always","resources":{"requests":{"cpu":"1"}}}],"resources":{"limits":{"cpu":"2"}}}}`,
	} {
		f.Add(template, `{"labels":{"pillion.dev/inject":"disabled"},"annotations":{"log-agent.pillion.dev/level":"x"}}`)
	}
	e := newEdge(load(f, sidecar))
	e.Log, e.Fit = discard(), evaluator(f)
	e.Namespaces = known{namespaceIn(f, []byte("name: shop\nlabels: {pod-security.kubernetes.io/enforce: restricted}\n"))}
	e.Limits = limitsIn(f, []byte("kind: ResourceQuota\nmetadata: {name: q}\nspec: {hard: {limits.memory: 1Mi, requests.cpu: 1m, pods: 0}}\n---\n"+
		"kind: LimitRange\nmetadata: {name: r}\nspec: {limits: [{type: Container, default: {cpu: 1m}, min: {cpu: 1}, max: {memory: 1}, maxLimitRequestRatio: {cpu: 1}}, {type: Pod, max: {cpu: 1}}]}\n"))
	f.Fuzz(func(t *testing.T, template, metadata string) {
		body := advised("apps/v1", "Deployment", "CREATE", `{"metadata":`+metadata+`,"spec":{"template":`+template+`}}`, "null")
		switch w := e.answer(post(t, webhook.PathAdvise, body)); w.Code {
		case http.StatusOK:
			if r, _ := checkContract(t, webhook.PathAdvise, body, w); !r.Allowed {
				t.Errorf("rejected: %s", w.Body)
			}
		case http.StatusBadRequest: // not JSON
		default:
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}
