// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/rollout"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

const adviceTemplate = `apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: NAME}
spec:
  default: true
  params: [{name: level, default: info, enum: [info, debug]}]
  pod: {spec: {initContainers: [{name: NAME, image: "NAME:IMAGE", restartPolicy: Always, args: ["${params.level}"], resources: {requests: {cpu: 100m}}}]}}
  validate: {mode: MODE, protect: [PROTECT]}
`

func adviceSet(t *testing.T, texts ...string) *templates.Set {
	t.Helper()
	var files []templates.File
	for i, text := range texts {
		if text != "" {
			files = append(files, templates.File{Path: fmt.Sprint(i), Data: []byte(text)})
		}
	}
	set, err := templates.Compile(files...)
	must(t, err)
	return set
}

// newCluster makes one state of a cluster.
func newCluster(t *testing.T, r *rand.Rand) *clusterState {
	t.Helper()
	often := func(n int) bool { return r.IntN(n) > 0 } // all but one of n times
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	mode, protect := pick("Warn", "Deny"), "image"
	if !often(4) {
		protect = ""
	}
	fill := func(name, image string) string {
		return strings.NewReplacer("NAME", name, "IMAGE", image, "MODE", mode, "PROTECT", protect).Replace(adviceTemplate)
	}
	s := &clusterState{
		base: fill("agent", "2"), ready: min(3, r.IntN(6)), mutating: often(8), validating: often(4), mutatingFails: !often(3), validatingFails: often(3),
		strips: !often(6), labels: map[string]string{"pillion.dev/inject": "enabled"},
	}
	var err error
	s.fits, err = limits.NewEvaluator()
	must(t, err)
	good := fill("side", "2")
	side := pick("none", "none", "good", "good", "broken", "broken, and some know it", "removed", "doubled")
	switch side {
	case "none", "removed":
		s.intended = adviceSet(t, s.base)
		s.inUse = s.intended
	case "good":
		s.object = good
		s.intended = adviceSet(t, s.base, good)
		s.inUse = s.intended
	case "doubled": // with the mounted one, which counts
		s.object = fill("agent", "3")
		s.intended = adviceSet(t, s.base)
		s.inUse = s.intended
	default:
		s.object = strings.Replace(good, "spec:", "spex:", 1)
		s.intended = adviceSet(t, s.base, good)
		if s.inUse = s.intended; side == "broken" { // after a restart
			s.inUse = adviceSet(t, s.base)
		}
	}
	if !often(8) { // which administrators did not mean
		s.labels["pillion.dev/inject"] = pick("true", "enable", "disabled", "shadow")
		if often(3) {
			delete(s.labels, "pillion.dev/inject")
		}
	}
	if !often(7) {
		s.deaf = !often(2)
		s.url = closedURL()
		if !s.deaf {
			s.url = openURL()
		}
	}
	s.denies = !often(12)
	s.args = []string{"--all-namespaces"}
	if !often(3) || !s.optedIn(nil) {
		s.args = []string{"shop"}
	}
	if !often(8) {
		s.labels["pod-security.kubernetes.io/enforce"] = "restricted"
	}
	if !often(3) {
		cpu := resource.MustParse(pick("250m", "600m", "10"))
		s.quota = &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}}
		s.quota.Status.Hard = corev1.ResourceList{"requests.cpu": cpu, "pods": resource.MustParse(pick("4", "20"))}
		s.quota.Status.Used = corev1.ResourceList{"requests.cpu": resource.MustParse("0"), "pods": resource.MustParse("0")}
	}
	s.about = fmt.Sprintf("%d ready, mutating %t (fails %t), validating %t (fails %t), mode %s, template object %s, strips %t, denies %t, url %q, labels %v", s.ready, s.mutating, s.mutatingFails,
		s.validating, s.validatingFails, mode, side, s.strips, s.denies, s.url, s.labels)
	old := adviceSet(t, fill("agent", "1"), fill("side", "1"))
	now := adviceSet(t, fill("agent", "2"), good)
	for i := range 1 + r.IntN(3) {
		s.owners = append(s.owners, s.newOwner(t, r, i, []*templates.Set{old, now, s.intended, s.intended, nil}))
	}
	for _, o := range s.owners {
		if _, denied := s.clone().create(o.template, true); denied && (s.denies || !often(4)) {
			o.lacks = 1 + r.IntN(2)
			if !often(3) {
				o.pods = nil
			}
		}
	}
	return s
}

// calm makes Pillion and the namespace work.
func (s *clusterState) calm(t *testing.T) {
	t.Helper()
	s.ready, s.mutating, s.validating, s.url, s.deaf, s.strips, s.denies, s.object = 3, true, true, "", false, false, false, ""
	s.intended = adviceSet(t, s.base)
	s.inUse = s.intended
	s.labels = map[string]string{"pillion.dev/inject": "enabled"}
	for _, o := range s.owners {
		o.lacks = 0
	}
}

// newOwner makes a workload whose pods were made at different times.
func (s *clusterState) newOwner(t *testing.T, r *rand.Rand, i int, times []*templates.Set) *ownerState {
	t.Helper()
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	o := &ownerState{kind: pick("Deployment", "StatefulSet", "DaemonSet"), name: fmt.Sprint("w", i)}
	switch {
	case r.IntN(6) > 0:
	case o.kind == "Deployment":
		o.more = `"paused":true,`
	case o.kind == "DaemonSet":
		o.more = `"updateStrategy":{"type":"OnDelete"},`
	default:
		o.more = pick(`"updateStrategy":{"type":"OnDelete"},`, `"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"partition":3}},`)
	}
	o.template = podTemplate(pick)
	if times[0] != nil && r.IntN(6) == 0 { // a pipeline injected it, perhaps long ago
		o.template = s.injected(times[r.IntN(2)], o.template)
	}
	before := o.template
	if r.IntN(3) == 0 {
		before = podTemplate(pick)
	}
	set := times[r.IntN(len(times))]
	for range 1 + r.IntN(3) {
		if r.IntN(3) == 0 {
			set = times[r.IntN(len(times))] // another time
		}
		pod := o.template
		if r.IntN(2) == 0 { // the rollout has not replaced it yet
			pod = before
		}
		o.old = append(o.old, string(pod) != string(o.template))
		if set != nil {
			pod = s.injected(set, pod)
		}
		if s.strips {
			pod = strip(pod)
		}
		if r.IntN(6) == 0 { // a user changed it since
			pod = []byte(strings.Replace(string(pod), `"agent:`, `"`+changedImage+`:`, 1))
		}
		o.pods = append(o.pods, pod)
		s.use(pod)
	}
	return o
}

// podTemplate returns what a user might write.
func podTemplate(pick func(...string) string) []byte {
	metadata := pick(`{}`, `{}`, `{}`, `{}`, `{"annotations":{"pillion.dev/templates":""}}`, `{"annotations":{"pillion.dev/templates":"agent"}}`, `{"labels":{"pillion.dev/inject":"disabled"}}`, `{"labels":{"pillion.dev/inject":"enabled"}}`,
		`{"annotations":{"agent.pillion.dev/level":"loud"}}`, `{"annotations":{"agent.pillion.dev/lewel":"debug"}}`, `{"annotations":{"agent.pillion.dev/level":"debug"}}`)
	own := pick(``, ``, ``, ``, `"initContainers":[{"name":"agent","image":"mine:1"}],`)
	return []byte(`{"metadata":` + metadata + `,"spec":{` + own + `"containers":[{"name":"web","image":"web:1"}]}}`)
}

func (s *clusterState) request(pod []byte) inject.Request {
	return inject.Request{Operation: "CREATE", OptedIn: true, Object: pod, Detail: true, Namespace: request.Namespace{Name: "shop", Labels: s.labels, Known: true}}
}

func (s *clusterState) injected(set *templates.Set, pod []byte) []byte {
	r, err := inject.New(set).Inject(s.request(pod))
	if err != nil {
		panic(err)
	}
	return r.InjectedJSON()
}

// strip is what the other webhook does.
func strip(pod []byte) []byte {
	var p map[string]any
	if err := json.Unmarshal(pod, &p); err != nil {
		panic(err)
	}
	spec := p["spec"].(map[string]any)
	all, _ := spec["initContainers"].([]any)
	spec["initContainers"] = slices.DeleteFunc(all, func(c any) bool { return strings.HasPrefix(fmt.Sprint(c.(map[string]any)["image"]), "agent:") })
	text, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	return text
}

// use counts a pod by the quota.
func (s *clusterState) use(pod []byte) {
	if s.quota == nil {
		return
	}
	var p corev1.Pod
	if err := json.Unmarshal(pod, &p); err != nil {
		panic(err)
	}
	used := s.quota.Status.Used.DeepCopy()
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		cpu := used["requests.cpu"]
		cpu.Add(c.Resources.Requests["cpu"])
		used["requests.cpu"] = cpu
	}
	pods := used["pods"]
	pods.Add(resource.MustParse("1"))
	used["pods"] = pods
	s.quota.Status.Used = used
}

// create is what the API server does with a new pod.
func (s *clusterState) create(pod []byte, limited bool) (made []byte, denied bool) {
	asked := s.optedIn(pod)
	switch {
	case !s.mutating, !asked:
	case s.answers():
		pod = s.injected(s.inUse, pod)
	case s.mutatingFails:
		return nil, true
	}
	if s.strips {
		pod = strip(pod)
	}
	switch {
	case s.denies:
		return nil, true
	case !s.validating, !asked:
	case s.answers():
		v, err := inject.NewJudge(inject.New(s.inUse), nil, true).Judge(s.request(pod))
		if err != nil {
			panic(err)
		}
		if v.Denied {
			return nil, true
		}
	case s.validatingFails:
		return nil, true
	}
	if limited {
		limits := limits.Limits{}
		if s.quota != nil {
			limits.Quotas = append(limits.Quotas, s.quota)
		}
		if s.fits.Room(s.labels, limits, pod, 1) != "" {
			return nil, true
		}
		s.use(pod)
	}
	return pod, false
}

func (s *clusterState) answers() bool { return s.url == "" && s.ready > 0 || s.url != "" && !s.deaf }

// openURL returns an address with a listener, closedURL one without.
var (
	openURL   = sync.OnceValue(func() string { return httptest.NewServer(http.NotFoundHandler()).URL })
	closedURL = func() string { return "https://127.0.0.1:1" } // a port without a listener
)

// optedIn is what the webhooks' selectors say.
func (s *clusterState) optedIn(pod []byte) bool {
	label, labelled := s.labels["pillion.dev/inject"]
	return label == "enabled" || !labelled && strings.Contains(string(pod), `"pillion.dev/inject":"enabled"`)
}

// failing reports whether status finds that an owner cannot create its pods.
func (s *clusterState) failing() bool {
	return slices.ContainsFunc(s.owners, func(o *ownerState) bool { return o.lacks > 0 && s.mutating && s.optedIn(o.template) })
}

// command is what the text should offer.
func (s *clusterState) command(a *pagedAPI) string {
	return "  " + strings.Join(append([]string{"pillion status"}, s.args...), " ") + " --kubeconfig " + a.file + " -o name |\n    xargs -r -L1 kubectl --kubeconfig " + a.file + " rollout restart\n"
}

// restart is kubectl rollout restart: all new pods beside the old ones, if there is
// most of them at once. It returns the old ones.
func (s *clusterState) restart(o *ownerState) (old [][]byte) {
	old = slices.Clone(o.pods)
	if o.more != "" {
		return old
	}
	for i := range o.pods {
		o.pods[i], _ = s.create(o.template, true)
	}
	return old
}

// score is how good a pod is by what administrators want.
func (s *clusterState) score(t *testing.T, pod []byte) int {
	t.Helper()
	if pod == nil {
		return gone
	}
	r, err := inject.New(s.intended).Inject(s.request(pod))
	must(t, err)
	score, evidence := whole, explain.EvidenceOf(pod)
	for i, template := range s.intended.Templates {
		switch evidence.State(template, &r.Decisions[i]) {
		case explain.Missing, explain.Altered:
			score = min(score, lacking)
		case explain.Outdated:
			score = min(score, older)
		}
		delete(evidence.InjectedBy, template.Name)
	}
	if len(evidence.InjectedBy) > 0 {
		score = min(score, older)
	}
	return score
}

func (s *clusterState) worst(t *testing.T, o *ownerState) int {
	t.Helper()
	score := whole
	for _, pod := range o.pods {
		score = min(score, s.score(t, pod))
	}
	return score
}

// clone is for what would be.
func (s *clusterState) clone() *clusterState {
	c := *s
	if s.quota != nil {
		c.quota = s.quota.DeepCopy()
	}
	c.owners = nil
	for _, o := range s.owners {
		copied := *o
		copied.pods = slices.Clone(o.pods)
		c.owners = append(c.owners, &copied)
	}
	return &c
}

func (s *clusterState) owner(t *testing.T, line string) *ownerState {
	t.Helper()
	for _, o := range s.owners {
		if line == fmt.Sprintf("-n shop %s.apps/%s\n", strings.ToLower(o.kind), o.name) {
			return o
		}
	}
	t.Fatalf("%q names nothing that there is", line)
	return nil
}

func (s *clusterState) ownerOf(t *testing.T, kind, name string) *ownerState {
	t.Helper()
	return s.owner(t, fmt.Sprintf("-n shop %s.apps/%s\n", strings.ToLower(kind), name))
}

// rollOut returns what pillion rollout makes of a pod in place.
func (s *clusterState) rollOut(t *testing.T, o *ownerState, i int) []byte {
	t.Helper()
	planner := &rollout.Planner{
		Injector: inject.New(s.inUse), Resizes: true, Mutated: s.strips, Namespace: s.request(nil).Namespace,
		Called: func(pod []byte) bool { return s.mutating && s.optedIn(pod) },
	}
	maker, running := o.object(t), o.running(t, i)
	if o.kind == "Deployment" {
		maker = o.sets(t)[map[bool]int{true: 1}[o.old[i]]]
	}
	plan, err := planner.Plan([]byte(asJSON(t, running)), []byte(asJSON(t, maker)))
	must(t, err)
	if plan.Action != rollout.Patch {
		return o.pods[i]
	}
	pod := []byte(asJSON(t, running))
	for _, patch := range []func() ([]byte, error){plan.Images, plan.Resources, plan.Record} {
		text, err := patch()
		must(t, err)
		if text == nil {
			continue
		}
		decoded, err := jsonpatch.DecodePatch(text)
		must(t, err)
		pod, err = decoded.Apply(pod)
		must(t, err)
	}
	return pod
}

func (s *clusterState) String() string {
	var b strings.Builder
	b.WriteString(s.about)
	if s.quota != nil {
		used, hard := s.quota.Status.Used["requests.cpu"], s.quota.Status.Hard["requests.cpu"]
		fmt.Fprintf(&b, ", quota %s of %s", &used, &hard)
	}
	for _, o := range s.owners {
		fmt.Fprintf(&b, "\n%s/%s %s%s: %d pods", o.kind, o.name, o.more, o.template, len(o.pods))
	}
	return b.String()
}
