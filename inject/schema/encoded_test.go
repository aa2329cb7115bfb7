// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// TestEncodings checks that every type in a pod whose values have more than one form in JSON has values
// here, and that they are foreseen as Kubernetes' own types decode and encode them.
func TestEncodings(t *testing.T) {
	t.Parallel()
	values := map[string][]string{
		"resource.Quantity":  {"0.5", `"1024Mi"`, `" 1 "`, `"1e3"`, `"0.1Ki"`, "2000", "-0", `"-1500m"`, `"1.5n"`, `"9999999999E"`, `"0"`, `"100m"`},
		"intstr.IntOrString": {"80", `"80"`, `"http"`, "-0"},
		"v1.Time":            {`"2026-01-02T03:04:05+02:00"`, `"2026-01-02T03:04:05.678Z"`},
		"v1.FieldsV1":        {`"x"`},
		"int32":              {"-0", "7"},
		"int64":              {"-0"},
	}
	seen := map[string]bool{}
	known := schemas{}
	known.schemaOf(reflect.TypeFor[corev1.Pod]())
	for typ, s := range known {
		switch {
		case typ.Kind() == reflect.Slice && typ.Elem().Kind() == reflect.Uint8 && !encodesItself(typ):
			t.Errorf("%s is base64, which has several forms", typ)
		case encodesItself(typ) && values[typ.String()] == nil:
			t.Errorf("%s has an encoding of its own; add values", typ)
		}
		for _, value := range values[typ.String()] {
			seen[typ.String()] = true
			n, err := jsontree.Parse([]byte(value))
			if err != nil {
				t.Fatal(err)
			}
			want := reflect.New(typ)
			if err := json.Unmarshal([]byte(value), want.Interface()); err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(want.Interface())
			if err != nil {
				t.Fatal(err)
			}
			got := s.AsField().foreseenPart(n, Server{}, true)
			if got.String() != string(text) {
				t.Errorf("%s: %s is foreseen as %s, and is stored as %s", typ, value, got.String(), text)
			}
			if again := s.AsField().foreseenPart(&got, Server{}, true); again.String() != got.String() {
				t.Errorf("%s: %s is foreseen as %s, and then as %s", typ, value, got.String(), again.String())
			}
		}
	}
	for name := range values {
		if !seen[name] {
			t.Errorf("no pod has a %s", name)
		}
	}
	for _, invalid := range []string{`"1x"`, `"1e1000000000"`, `""`, "true", "{}", `["1"]`} {
		n, err := jsontree.Parse([]byte(invalid))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range known {
			if got := s.encodedScalar(n); encodesItself(s.GoType) && s.GoType.Kind() == reflect.Struct && s.GoType.Name() != "IntOrString" && s.GoType.Name() != "FieldsV1" && got.String() != invalid {
				t.Errorf("the invalid %s %s is foreseen as %s", s.GoType, invalid, got.String())
			}
		}
	}
}

// TestForeseen checks values that depend on their place.
func TestForeseen(t *testing.T) {
	t.Parallel()
	for pod, want := range map[string]string{
		`{"spec":{"containers":[{"resources":{"limits":{"cpu":0.0005,"x":null}}}]}}`:                                            `"resources":{"limits":{"cpu":"1m","x":"0"},"requests":{"cpu":"1m","x":"0"}}`,
		`{"spec":{"containers":[{"resources":{"limits":{"a":"1"},"requests":{"b":"1000m"}}}]}}`:                                 `"resources":{"limits":{"a":"1"},"requests":{"b":"1","a":"1"}}`,
		`{"spec":{"containers":[{"resources":{"limits":{},"requests":null}}]}}`:                                                 `"resources":{}`,
		`{"spec":{"overhead":{"cpu":"1e3"}}}`:                                                                                   `"overhead":{"cpu":"1e3"}`,
		`{"spec":{"volumes":[{"emptyDir":{"sizeLimit":"0.0005"}}]}}`:                                                            `"sizeLimit":"500u"`,
		`{"spec":{"volumes":[{"emptyDir":null,"name":"v","hostPath":null}]}}`:                                                   `{"name":"v","emptyDir":{}}`,
		`{"spec":{"hostNetwork":true,"containers":[{"ports":[{"containerPort":80}]}]}}`:                                         `"hostPort":80`,
		`{"spec":{"hostNetwork":true,"containers":[{"ports":[{"containerPort":80,"hostPort":0}]}]}}`:                            `"hostPort":80`,
		`{"spec":{"containers":[{"env":[{"valueFrom":{"resourceFieldRef":{"divisor":0}}}]}]}}`:                                  `"divisor":"0"`,
		`{"spec":{"containers":[{"env":[{"valueFrom":{"resourceFieldRef":{"divisor":"1000m"}}}]}]}}`:                            `"divisor":"1"`,
		`{"spec":{"terminationGracePeriodSeconds":-0}}`:                                                                         `"terminationGracePeriodSeconds":0`,
		`{"spec":{"resources":{"limits":{"cpu":"0.5"}}}}`:                                                                       `"resources":{"limits":{"cpu":"500m"}}`,
		`{"spec":{"volumes":[{"ephemeral":{"volumeClaimTemplate":{"spec":{"resources":{"requests":{"storage":"1024Gi"}}}}}}]}}`: `"storage":"1Ti"`,
		`{"spec":{"volumes":[{"ephemeral":{"volumeClaimTemplate":{}}}]}}`:                                                       `"metadata":{}`,
	} {
		stored, err := AsStored([]byte(pod))
		if err != nil || !strings.Contains(string(stored), want) {
			t.Errorf("%s is stored as %s, want %s (%v)", pod, stored, want, err)
		}
	}
}

// TestForeseenFile checks that a pod in a file gets the defaults of an API server, so that expressions read the same
// in both.
func TestForeseenFile(t *testing.T) {
	t.Parallel()
	for image, policy := range map[string]string{
		"web": "Always", "registry.example:5000/web": "Always", "web:latest": "Always", "web:latest@sha256:0": "Always",
		"web:1": "IfNotPresent", "registry.example:5000/web:1": "IfNotPresent", "web@sha256:0": "IfNotPresent", "": "IfNotPresent",
	} {
		pod, err := jsontree.Parse([]byte(`{"spec":{"schedulerName":"mine","containers":[{"image":"` + image + `"}],"initContainers":[{"image":"` + image + `","imagePullPolicy":"Never"}]}}`))
		if err != nil {
			t.Fatal(err)
		}
		got := Pod().Foreseen(pod, Server{File: true})
		spec := got.Get("spec")
		if c := spec.Get("containers").Items()[0]; c.Get("imagePullPolicy").Text() != policy {
			t.Errorf("%s: %s, want %s", image, c.Get("imagePullPolicy"), policy)
		}
		if c := spec.Get("initContainers").Items()[0]; c.Get("imagePullPolicy").Text() != "Never" {
			t.Errorf("%s: the pod's own policy is lost", image)
		}
		for _, field := range []string{`"schedulerName":"mine"`, `"dnsPolicy":"ClusterFirst"`, `"enableServiceLinks":true`, `"restartPolicy":"Always"`, `"securityContext":{}`, `"terminationGracePeriodSeconds":30`} {
			if !strings.Contains(spec.String(), field) {
				t.Errorf("%s lacks %s", spec, field)
			}
		}
		if same := Pod().Foreseen(pod, Server{}); same.String() != pod.String() {
			t.Errorf("an API server's pod becomes %s", &same)
		}
	}
}

// FuzzQuantity checks quantities, and that a stored quantity does not change.
func FuzzQuantity(f *testing.F) {
	for _, number := range []string{"0", "1", "01", "1000", "1023", "1024", "10240", "999999", "1000000", "0.5", "-1", ".1", "1e3", "1e-9", ""} {
		for _, suffix := range []string{"", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"} {
			f.Add(number + suffix)
		}
	}
	s := storedSchema().At("spec").At("overhead").Elem
	f.Fuzz(func(t *testing.T, text string) {
		n := jsontree.Text(text)
		got := s.encodedScalar(&n)
		q, err := values.ParseQuantity(strings.TrimSpace(n.Text()))
		if want := q.String(); err == nil && got.Text() != want || err != nil && got.Text() != n.Text() {
			t.Errorf("%q is foreseen as %q, want %q (%v)", text, got.Text(), want, err)
		}
		if again := s.encodedScalar(&got); again.Text() != got.Text() {
			t.Errorf("%q is foreseen as %q, and then as %q", text, got.Text(), again.Text())
		}
	})
}

// TestQuantityAllocs checks that the usual quantities are recognized without memory.
func TestQuantityAllocs(t *testing.T) {
	s := storedSchema().At("spec").At("overhead").Elem
	for _, text := range []string{"100m", "2", "64Mi", "1Gi", "512M"} {
		n := jsontree.Text(text)
		if allocs := testing.AllocsPerRun(10, func() { s.encodedScalar(&n) }); allocs > 0 {
			t.Errorf("%s: %s allocations", text, strconv.FormatFloat(allocs, 'f', 0, 64))
		}
	}
}

// TestZeroIsDefault checks for each field in which a zero value means the same as no value that it is the default of the field, on
// either side of a comparison, and is nothing else.
func TestZeroIsDefault(t *testing.T) {
	t.Parallel()
	known, tried := schemas{}, 0
	known.schemaOf(podType)
	for _, s := range known {
		for name, f := range s.fields {
			value, ok := Default(f.Parent.Name() + "." + name)
			zero, other := `""`, `"other"`
			if strings.TrimLeft(value, "0123456789") == "" {
				zero, other = "0", "77"
			}
			if !ok || !f.AbsentIsZero || f.Gated || value == zero || f.impliedValue(nil, false) == nil {
				continue
			}
			tried++
			object := func(value string) *jsontree.Node {
				n, err := jsontree.Parse([]byte("{" + strconv.Quote(name) + ": " + value + "}"))
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			for _, own := range []string{zero, value} {
				for _, its := range []string{zero, value} {
					if !s.Contains(object(own), object(its)) {
						t.Errorf("%s.%s: %s does not contain %s", f.Parent, name, own, its)
					}
				}
				if s.Contains(object(own), object(other)) || s.Contains(object(other), object(own)) {
					t.Errorf("%s.%s: %s and %s are the same", f.Parent, name, own, other)
				}
			}
			if !s.Contains(new(jsontree.Members()), object(zero)) {
				t.Errorf("%s.%s: an empty object does not contain %s", f.Parent, name, zero)
			}
		}
	}
	if tried < 15 {
		t.Errorf("only %d fields were tried", tried)
	}
}

// TestZeroFillings checks for each type of the pod that what is filled in, besides Kubernetes' own defaults, is what Go writes for a
// zero value.
func TestZeroFillings(t *testing.T) {
	t.Parallel()
	// No API server stores a pod without these.
	required := []string{"HTTPGetAction.port", "TCPSocketAction.port", "WeightedPodAffinityTerm.podAffinityTerm", "PersistentVolumeClaimTemplate.spec"}
	known := schemas{}
	known.schemaOf(podType)
	for typ, s := range known {
		if typ.Kind() != reflect.Struct || s.ownEncoding || typ == podType {
			continue
		}
		text, err := json.Marshal(reflect.Zero(typ).Interface())
		if err != nil {
			t.Fatal(err)
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, value := range s.defaultFillings() {
			if _, own := Default(s.fields[value.Name()].Parent.Name() + "." + value.Name()); own {
				delete(want, value.Name())
			} else {
				got[value.Name()] = value.String()
			}
		}
		for name, value := range want {
			if f := s.fields[name]; string(value) != "null" && !f.Gated && got[name] != string(value) && !slices.Contains(required, typ.Name()+"."+name) {
				t.Errorf("%s.%s: Go writes %s, and %q is filled in", typ, name, value, got[name])
			}
			delete(got, name)
		}
		for name, value := range got {
			t.Errorf("%s.%s: %s is filled in, and Go writes nothing", typ, name, value)
		}
	}
}
