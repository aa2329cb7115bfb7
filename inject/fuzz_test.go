// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
)

// caseInjectors returns one injector for each case, and one for all test templates.
func caseInjectors(t testing.TB) (injectors []*inject.Injector, pods [][]byte) {
	t.Helper()
	injectors = append(injectors, inject.New(mustLoad(t, os.DirFS("testdata/templates"), ".")))
	files, err := filepath.Glob("testdata/cases/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		injector, req := readCase(t, archive)
		injectors, pods = append(injectors, injector), append(pods, req.Object)
	}
	return injectors, pods
}

// FuzzInject checks that the engine rejects any input, or that the invariants hold.
func FuzzInject(f *testing.F) {
	injectors, pods := caseInjectors(f)
	for i, pod := range pods {
		f.Add(uint8(i), pod)
	}
	f.Fuzz(func(t *testing.T, which uint8, pod []byte) {
		req := inject.Request{Operation: "CREATE", Namespace: shopNamespace(), Object: pod}
		injector := injectors[int(which)%len(injectors)]
		if _, err := injector.Inject(req); err != nil {
			return
		}
		if hasDoubledKeys(pod) {
			return // the library that applies the patch reorders such a document
		}
		checkInvariants(t, injector, req)
	})
}

// hasDoubledKeys reports whether decoding and encoding loses a member.
func hasDoubledKeys(text []byte) bool {
	d := json.NewDecoder(strings.NewReader(string(text)))
	return doubledKeys(d) != nil
}

func doubledKeys(d *json.Decoder) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	delim, ok := token.(json.Delim)
	if !ok {
		return nil
	}
	seen := map[any]bool{}
	for d.More() {
		if delim == '{' {
			key, err := d.Token()
			if err != nil {
				return err
			}
			if seen[key] {
				return fmt.Errorf("%v twice", key)
			}
			seen[key] = true
		}
		if err := doubledKeys(d); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}

// FuzzShapes checks the invariants for random pods, made of parts that matter to templates, with
// every set of templates.
func FuzzShapes(f *testing.F) {
	injectors, _ := caseInjectors(f)
	for seed := range uint64(64) {
		f.Add(seed, seed*7)
	}
	f.Fuzz(func(t *testing.T, a, b uint64) {
		g := &generator{rand.New(rand.NewPCG(a, b))}
		pod, err := json.Marshal(g.pod())
		if err != nil {
			t.Fatal(err)
		}
		req := inject.Request{Operation: "CREATE", Namespace: shopNamespace(), Object: pod}
		checkInvariants(t, injectors[g.IntN(len(injectors))], req)
	})
}

// FuzzTemplates does the same with random combinations of the cases' templates, which were not made
// for each other.
func FuzzTemplates(f *testing.F) {
	injectors, _ := caseInjectors(f)
	var all []*templates.Template
	for _, i := range injectors {
		all = append(all, i.Set().Templates...)
	}
	for seed := range uint64(64) {
		f.Add(seed, seed*7)
	}
	f.Fuzz(func(t *testing.T, a, b uint64) {
		g := &generator{rand.New(rand.NewPCG(a, b))}
		var set []*templates.Template
		for range 1 + g.IntN(4) {
			next := all[g.IntN(len(all))]
			if !slices.ContainsFunc(set, func(t *templates.Template) bool { return t.Name == next.Name }) {
				set = append(set, next)
			}
		}
		pod, err := json.Marshal(g.pod())
		if err != nil {
			t.Fatal(err)
		}
		req := inject.Request{Operation: "CREATE", Namespace: shopNamespace(), Object: pod}
		checkInvariants(t, inject.New(templates.NewSet(set)), req)
	})
}

// generator makes pods from the words in the test templates, so that conflicts are frequent.
type generator struct{ *rand.Rand }

func (g *generator) pod() map[string]any {
	return g.object(map[string]func() any{
		"metadata": func() any {
			return g.object(map[string]func() any{"name": g.text, "labels": g.labels, "annotations": g.annotations})
		},
		"spec": g.spec,
	})
}

func (g *generator) spec() any {
	return g.object(map[string]func() any{
		"containers":       func() any { return g.list(g.container) },
		"initContainers":   func() any { return g.list(g.container) },
		"volumes":          func() any { return g.list(g.volume) },
		"tolerations":      func() any { return g.list(g.text) },
		"imagePullSecrets": func() any { return g.list(func() any { return map[string]any{"name": g.text()} }) },
		"securityContext": func() any {
			return g.object(map[string]func() any{"fsGroup": g.text, "supplementalGroups": func() any { return g.list(g.text) }})
		},
		"resources":                    func() any { return g.object(map[string]func() any{"limits": g.labels}) },
		"automountServiceAccountToken": func() any { return g.IntN(2) == 0 },
		"hostNetwork":                  func() any { return g.IntN(8) == 0 },
		"unknown":                      g.text,
	})
}

func (g *generator) container() any {
	return g.object(map[string]func() any{
		"name": g.text, "image": g.text, "restartPolicy": g.text, "args": func() any { return g.list(g.text) },
		"env": func() any { return g.list(g.env) },
		"volumeMounts": func() any {
			return g.list(func() any { return map[string]any{"name": g.text(), "mountPath": g.path()} })
		},
		"volumeDevices": func() any {
			return g.list(func() any { return map[string]any{"name": g.text(), "devicePath": g.path()} })
		},
		"ports": func() any {
			return g.list(func() any {
				return g.object(map[string]func() any{
					"containerPort": g.number, "hostPort": g.number, "name": g.text,
					"protocol": func() any { return g.pick("TCP", "UDP") },
				})
			})
		},
		"resources": func() any { return g.object(map[string]func() any{"limits": g.labels, "requests": g.labels}) },
		"unknown":   g.text,
	})
}

func (g *generator) env() any { return map[string]any{"name": g.text(), "value": g.text()} }

func (g *generator) volume() any {
	return g.object(map[string]func() any{"name": g.text, "emptyDir": func() any { return map[string]any{} }, "hostPath": g.text})
}

func (g *generator) labels() any {
	return g.object(map[string]func() any{"app": g.text, "cpu": g.text, "memory": g.text, "pillion.dev/inject": g.text, "a/b~c": g.text})
}

func (g *generator) annotations() any {
	return g.object(map[string]func() any{
		"pillion.dev/templates":          g.text,
		"agent.pillion.dev/injected":     g.text,
		"agent.pillion.dev/customize":    func() any { return g.pick("true", "false") },
		"agent.pillion.dev/level":        g.text,
		"log-agent.pillion.dev/injected": g.text,
		"proxy.pillion.dev/customize":    func() any { return g.pick("true", "false") },
		"proxy.pillion.dev/port":         g.number,
		"side.pillion.dev/injected":      g.text,
		"\"odd\\ key\u2028/~":            g.text,
	})
}

func (g *generator) text() any {
	return g.pick("agent", "log-agent", "proxy", "side", "a", "b", "c", "logs", "app-logs", "app", "web", "enabled",
		"Always", "agent:1", "side:1", "LOG_DIR", "A", "B", "E", "", "+extra,-agent", "kube-api-access-abcde", "1", nil, true, 7,
		"pillion-no-token", "proxy-config", "proxy-registry", []any{}, map[string]any{}, "debug", "64Mi", "shipped")
}

func (g *generator) path() any {
	return g.pick("/logs", "/var/log/app", "/var/log/app/", "/a", "/etc/proxy", "/var/run/secrets/kubernetes.io/serviceaccount")
}

func (g *generator) number() any {
	return g.pick(80, 8080, 53, 15001, "15001", json.Number("9007199254740993"))
}

func (g *generator) pick(choices ...any) any { return choices[g.IntN(len(choices))] }

// object returns an object that has each member in two of three cases. Sometimes it returns another
// type.
func (g *generator) object(members map[string]func() any) map[string]any {
	o := map[string]any{}
	for _, name := range sorted(members) {
		switch g.IntN(24) {
		case 0:
			o[name] = nil
		case 1:
			o[name] = g.text()
		case 2, 3, 4, 5, 6, 7:
		default:
			o[name] = members[name]()
		}
	}
	return o
}

func (g *generator) list(item func() any) any {
	list := []any{}
	for range g.IntN(4) {
		list = append(list, item())
	}
	return list
}
