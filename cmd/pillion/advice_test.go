// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/inject/report/status"
	"github.com/pillion-dev/pillion/inject/testing/size"
	"github.com/pillion-dev/pillion/templates"
)

// TestAdvice checks that in any state of a cluster, the advice of status makes no pod worse and at
// least one better. Status reports that all is well only if new pods would be correct.
func TestAdvice(t *testing.T) {
	t.Parallel()
	states := size.Choose(t, 150, 300)
	advised, helped, well, rolling, rollouts, deleted, labelled, annotated := 0, 0, 0, 0, 0, 0, 0, 0
	for seed := range uint64(states + states/4) {
		s := newCluster(t, rand.New(rand.NewPCG(seed, 14)))
		if seed >= uint64(states) { // Pillion itself works, so advice depends on the pods alone
			s.calm(t)
		}
		api := s.api(t)
		_, names, told := api.status(t, append(s.args, "-o", "name")...)
		code, text, _ := api.status(t, s.args...)
		if offers := strings.Contains(text, "A restart fixes"); offers != (names != "") {
			t.Errorf("seed %d: the text offers a restart: %t; the names are %q", seed, offers, names)
		}
		if names != "" && !strings.Contains(text, s.command(api)) {
			t.Errorf("seed %d: the command is not for %q: %s", seed, s.args, text)
		}
		if (s.deaf || s.url == "" && s.ready == 0 || s.failing()) && code == exitOK {
			t.Errorf("seed %d: exit code 0 though pods cannot be made: %s\n%s", seed, s, text)
		}
		after := s.clone()
		for line := range strings.Lines(names) {
			advised++
			o := after.owner(t, line)
			if slices.Contains(o.old, true) {
				rolling++
			}
			better := false
			for i, old := range after.restart(o) {
				now := s.score(t, o.pods[i])
				better = better || now > s.score(t, old)
				if now < s.score(t, old) {
					t.Errorf("seed %d: following %q makes a pod worse: %s\nwas %s\nis  %s\n%s", seed, line, s, old, o.pods[i], text)
				}
			}
			if !better {
				t.Errorf("seed %d: following %q makes nothing better: %s\n%s%s", seed, line, s, text, told)
			}
		}
		rollouts += s.tryRollout(t, api, seed, text)
		deleted += s.tryDelete(t, api, seed)
		labelled += s.tryLabel(t, seed, text)
		annotated += s.tryAnnotations(t, seed)
		if strings.HasPrefix(text, "No problems") {
			well++
			pod, denied := s.clone().create([]byte(plainPod), false)
			wrong := s.optedIn(nil) && (denied || s.score(t, pod) < whole)
			if wrong || code != exitOK || s.failing() {
				t.Errorf("seed %d: all is well (%d), and a new pod would be %s: %s\n%s", seed, code, pod, s, text)
			}
		}
		for _, o := range s.clone().owners { // what it might have advised
			before := s.worst(t, o)
			if s.restart(o); s.worst(t, o) > before {
				helped++
			}
		}
	}
	t.Logf("%d restarts were advised (%d while pods were replaced), of %d that would have helped; %d updates in place, %d deletions, %d labels and %d annotations were; all was well %d times of %d",
		advised, rolling, helped, rollouts, deleted, labelled, annotated, well, states)
	if min(advised, 3*rollouts, 3*deleted, 3*labelled, 3*annotated) < states/15 || well < states/100 || rolling < states/150 {
		t.Error("this tests nothing")
	}
}

// tryRollout checks that pillion rollout makes pods better if status suggests it, and returns the number of owners with such pods.
func (s *clusterState) tryRollout(t *testing.T, api *pagedAPI, seed uint64, text string) (advised int) {
	t.Helper()
	_, out, _ := api.status(t, append(s.args, "-o", "json")...)
	var report status.Report
	must(t, json.Unmarshal([]byte(out), &report))
	for i := range report.Owners {
		if !report.Owners[i].InPlace {
			continue
		}
		advised++
		o, better := s.ownerOf(t, report.Owners[i].Kind, report.Owners[i].Name), false
		for p := range o.pods {
			was, now := s.score(t, o.pods[p]), s.score(t, s.rollOut(t, o, p))
			better = better || now > was
			if now < was {
				t.Errorf("seed %d: a rollout makes pod %d of %s worse: %s", seed, p, o.name, s)
			}
		}
		if !better {
			t.Errorf("seed %d: a rollout makes no pod of %s better: %s\n%s", seed, o.name, s, text)
		}
	}
	if offers := strings.Contains(text, "without a restart"); offers != (advised > 0) {
		t.Errorf("seed %d: the text offers a rollout: %t; %d owners can be updated: %s", seed, offers, advised, text)
	}
	return advised
}

// tryDelete checks that a new pod is better if explain advises to delete a pod. It tries the first pod that lacks something, and returns 1
// if it was advised.
func (s *clusterState) tryDelete(t *testing.T, api *pagedAPI, seed uint64) (advised int) {
	t.Helper()
	for _, o := range s.owners {
		for i, pod := range o.pods {
			was := s.score(t, pod)
			if was != lacking {
				continue
			}
			serve := func(path, apiVersion, kind string, object map[string]any) {
				object["apiVersion"], object["kind"] = apiVersion, kind
				api.objects[path+"/"+object["metadata"].(map[string]any)["name"].(string)] = object
			}
			const apps = "/apis/apps/v1/namespaces/shop/"
			serve(shopPods, "v1", "Pod", o.running(t, i))
			serve(apps+strings.ToLower(o.kind)+"s", "apps/v1", o.kind, o.object(t))
			for _, set := range o.sets(t) {
				serve(apps+"replicasets", "apps/v1", "ReplicaSet", set)
			}
			_, text, stderr := api.runExplain(t, "pod/"+o.podName(i), "-n", "shop")
			if text == "" {
				t.Fatal(stderr)
			}
			if !strings.Contains(text, "Delete it and create it again") {
				return 0
			}
			made, _ := s.clone().create(o.template, true)
			if now := s.score(t, made); now <= was {
				t.Errorf("seed %d: a new pod is no better than %s: %s\n%s\n%s", seed, pod, made, s, text)
			}
			return 1
		}
	}
	return 0
}

// tryLabel checks that Pillion processes the pods of a namespace if status advises to label it, and returns 1 if it was advised.
func (s *clusterState) tryLabel(t *testing.T, seed uint64, text string) (advised int) {
	t.Helper()
	m := regexp.MustCompile(`label (--overwrite )?namespace shop (\S+)=(\S+)\n`).FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	after := s.clone()
	after.labels = maps.Clone(s.labels)
	if _, has := after.labels[m[2]]; has && m[1] == "" {
		t.Errorf("seed %d: kubectl would not overwrite the label: %s", seed, text)
	}
	after.labels[m[2]] = m[3]
	_, text, _ = after.api(t).status(t, s.args...)
	if strings.Contains(text, "Not opted in") {
		t.Errorf("seed %d: the label does not help: %s\n%s", seed, s, text)
	}
	was, _ := s.create([]byte(plainPod), false)
	if now, denied := after.create([]byte(plainPod), false); !s.denies && (denied || after.score(t, now) < whole || s.score(t, was) > after.score(t, now)) {
		t.Errorf("seed %d: a new pod of the namespace with the label is %s: %s", seed, now, s)
	}
	return 1
}

// tryAnnotations follows the advice about annotations in the messages about pods, and returns how much there was.
func (s *clusterState) tryAnnotations(t *testing.T, seed uint64) (advised int) {
	t.Helper()
	injector := inject.New(s.intended)
	messages := func(pod []byte) (all []string) {
		r, err := injector.Inject(s.request(pod))
		must(t, err)
		for i := range r.Decisions {
			all = append(all, r.Decisions[i].Sentence())
		}
		for i := range r.Findings {
			all = append(all, r.Findings[i].String())
		}
		return all
	}
	for _, o := range s.owners {
		for _, message := range messages(o.template) {
			pod := yamlObject(t, string(o.template))
			metadata := pod["metadata"].(map[string]any)
			annotations, _ := metadata["annotations"].(map[string]any)
			if annotations == nil {
				annotations = map[string]any{}
				metadata["annotations"] = annotations
			}
			if m := regexp.MustCompile(`set the annotation (\S+): "(\w+)"`).FindStringSubmatch(message); m != nil {
				annotations[m[1]] = m[2]
			} else if m := regexp.MustCompile(`(\w+)\.pillion\.dev/(\w+).*did you mean "?(\w+)`).FindStringSubmatch(message); m != nil {
				key, value := m[1]+".pillion.dev/", annotations[m[1]+".pillion.dev/"+m[2]]
				delete(annotations, key+m[2])
				annotations[key+m[3]] = value
			} else {
				continue
			}
			advised++
			if after := messages([]byte(asJSON(t, pod))); slices.Contains(after, message) {
				t.Errorf("seed %d: following this changes nothing: %s\n%s\n%q", seed, message, o.template, after)
			}
		}
	}
	return advised
}

const plainPod = `{"metadata":{"name":"x"},"spec":{"containers":[{"name":"web","image":"web:1"}]}}`

// The scores of pods. One that was not made is worse than any other.
const (
	gone = iota
	lacking
	older
	whole
)

// clusterState is a made-up cluster.
type clusterState struct {
	about                          string         // for users
	intended                       *templates.Set // what administrators want; a broken object as it was before
	inUse                          *templates.Set // what the replicas use
	base                           string         // the templates that are mounted
	object                         string         // a template in the API server; "" for none
	ready                          int            // replicas
	mutating, validating           bool
	mutatingFails, validatingFails bool              // their failurePolicy
	strips                         bool              // another webhook takes the sidecar away
	denies                         bool              // and another one denies all
	url                            string            // by which the API server calls Pillion; "" if by its Service
	deaf                           bool              // nothing listens there
	args                           []string          // of status
	labels                         map[string]string // of the namespace
	quota                          *corev1.ResourceQuota
	owners                         []*ownerState
	fits                           *limits.Evaluator
}

// ownerState is a workload and its pods.
type ownerState struct {
	kind, name, more string // more is JSON of its spec
	template         []byte
	pods             [][]byte
	old              []bool // of each pod: whether it is of an older template
	lacks            int    // pods that could not be made
}
