// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pillion-dev/pillion/inject"
)

// TestNoWayAround checks that a pod cannot bring a required template's container and make it run
// something else. Any field that the template does not set, and any other value of a field that it
// sets, must be a finding that denies the pod, with or without a forged record. Resources are
// excepted, because they do not change the program and others set them. So are further items of some lists, which other
// webhooks add to all containers, unless the template names the lists.
func TestNoWayAround(t *testing.T) {
	t.Parallel()
	open := []string{"env", "envFrom", "ports", "volumeDevices", "volumeMounts"}
	checkNoWayAround(t, "required: true", append(open, "resources"))
	checkNoWayAround(t, "required: true, validate: {protect: [all, "+strings.Join(open, ", ")+"]}", []string{"resources"})
}

func checkNoWayAround(t *testing.T, rules string, open []string) {
	t.Helper()
	injector := parsed(t, `apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: agent}
spec: {`+rules+`, pod: {spec: {initContainers: [{name: agent, image: "agent:1", restartPolicy: Always}]}}}
`)
	judge := inject.NewJudge(injector, nil, true)
	annotations := map[string]string{"agent.pillion.dev/injected": injector.Set().Templates[0].Revision}
	verdict := func(c corev1.Container, marked bool) *inject.Verdict {
		t.Helper()
		pod := corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{c}, Containers: []corev1.Container{{Name: "web", Image: "web"}}}}
		if marked {
			pod.Annotations = annotations
		}
		text, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		return mustJudge(t, judge, injectedBy(t, injector, string(text)))
	}
	own := corev1.Container{Name: "agent", Image: "agent:1", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}
	for _, marked := range []bool{true, false} {
		if v := verdict(own, marked); v.Word() != "allowed" {
			t.Fatalf("what the template says: %v", v.Judged)
		}
		for f := range reflect.TypeFor[corev1.Container]().Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "name" {
				continue
			}
			c := own
			fillField(reflect.ValueOf(&c).Elem().FieldByIndex(f.Index))
			v, want := verdict(c, marked), "denied"
			if slices.Contains(open, name) {
				want = "allowed"
			}
			if v.Word() != want || want == "denied" && !strings.Contains(inject.Denial(v.Judged), "/"+name) && !strings.Contains(inject.Denial(v.Judged), "named agent") && !strings.Contains(inject.Denial(v.Judged), "the container agent differs from the template") {
				t.Errorf("%s (marked: %t): %s: %v", name, marked, v.Word(), v.Judged)
			}
		}
	}
}

// fillField sets a field, and all fields in it, to values that are not defaults.
func fillField(v reflect.Value) {
	switch v.Interface().(type) {
	case resource.Quantity:
		v.Set(reflect.ValueOf(resource.MustParse("7")))
		return
	case intstr.IntOrString:
		v.Set(reflect.ValueOf(intstr.FromInt32(7777)))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillField(v.Elem())
	case reflect.Struct:
		for f := range v.Type().Fields() {
			fillField(v.FieldByIndex(f.Index))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillField(v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		value := reflect.New(v.Type().Elem()).Elem()
		fillField(value)
		v.SetMapIndex(reflect.ValueOf("cpu").Convert(v.Type().Key()), value)
	case reflect.String:
		v.SetString("evil")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(7777)
	}
}
