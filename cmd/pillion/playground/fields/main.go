// SPDX-License-Identifier: Apache-2.0

// Fields writes the fields of the objects that the playground completes: {"kinds": ..., "definitions": ...}, in the
// notation of JSON Schema. They are the types of the Kubernetes API that Pillion is built with.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

func main() {
	if err := json.NewEncoder(os.Stdout).Encode(all()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type object = map[string]any

// kinds are the objects of a manifest that the page evaluates.
func kinds() map[string][]any {
	return map[string][]any{
		"v1":       {corev1.Pod{}, corev1.PodTemplate{}, corev1.ReplicationController{}, corev1.Namespace{}, corev1.ServiceAccount{}},
		"apps/v1":  {appsv1.Deployment{}, appsv1.ReplicaSet{}, appsv1.StatefulSet{}, appsv1.DaemonSet{}},
		"batch/v1": {batchv1.Job{}, batchv1.CronJob{}},
	}
}

// values are what strings of a type can be. Others are in the schema of templates already.
func values() map[reflect.Type][]any {
	return map[reflect.Type][]any{
		reflect.TypeFor[corev1.RestartPolicy]():                 {corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever},
		reflect.TypeFor[corev1.DNSPolicy]():                     {corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet, corev1.DNSDefault, corev1.DNSNone},
		reflect.TypeFor[corev1.OSName]():                        {corev1.Linux, corev1.Windows},
		reflect.TypeFor[corev1.PreemptionPolicy]():              {corev1.PreemptLowerPriority, corev1.PreemptNever},
		reflect.TypeFor[corev1.UnsatisfiableConstraintAction](): {corev1.DoNotSchedule, corev1.ScheduleAnyway},
		reflect.TypeFor[appsv1.DeploymentStrategyType]():        {appsv1.RollingUpdateDeploymentStrategyType, appsv1.RecreateDeploymentStrategyType},
		reflect.TypeFor[appsv1.PodManagementPolicyType]():       {appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement},
		reflect.TypeFor[batchv1.ConcurrencyPolicy]():            {batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent},
		reflect.TypeFor[batchv1.CompletionMode]():               {batchv1.NonIndexedCompletion, batchv1.IndexedCompletion},
	}
}

// all returns the fields of all kinds, without what no user writes.
func all() object {
	g := generator{definitions: object{}, values: values()}
	refs := object{}
	var names []string
	for version, of := range kinds() {
		for _, kind := range of {
			t := reflect.TypeOf(kind)
			names = append(names, t.Name())
			refs[t.Name()] = g.of(t)
			properties := g.definitions[t.Name()].(object)["properties"].(object)
			properties["apiVersion"] = object{"enum": []string{version}}
		}
	}
	slices.Sort(names)
	for _, name := range names {
		g.definitions[name].(object)["properties"].(object)["kind"] = object{"enum": names}
	}
	return object{"kinds": refs, "definitions": g.definitions}
}

type generator struct {
	definitions object
	values      map[reflect.Type][]any
}

// of returns the schema of a type.
func (g *generator) of(t reflect.Type) object {
	switch {
	case t.Kind() == reflect.Pointer:
		return g.of(t.Elem())
	case g.values[t] != nil:
		return object{"enum": g.values[t]}
	case t.Kind() == reflect.Bool:
		return object{"type": "boolean"}
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		return object{"items": g.of(t.Elem())}
	case t.Kind() != reflect.Struct, t == reflect.TypeFor[resource.Quantity](), t == reflect.TypeFor[intstr.IntOrString](), t.Name() == "Time", t.Name() == "FieldsV1":
		return object{}
	}
	if name := t.Name(); g.definitions[name] == nil {
		properties := object{}
		g.definitions[name] = object{"properties": properties} // before the fields, because it may contain itself
		docs := docsOf(t)
		for _, f := range jsontree.StructFields(t) {
			if slices.Contains([]string{"status", "managedFields", "ephemeralContainers"}, f.JSON) {
				continue // no manifest has them
			}
			field := g.of(f.Type)
			if doc, _, _ := strings.Cut(docs[f.JSON], ". "); doc != "" {
				field["description"] = doc // the first sentence
			}
			properties[f.JSON] = field
		}
	}
	return object{"$ref": "#/definitions/" + t.Name()}
}

// docsOf returns Kubernetes' own descriptions of the fields of a type.
func docsOf(t reflect.Type) map[string]string {
	if documented, ok := reflect.TypeAssert[interface{ SwaggerDoc() map[string]string }](reflect.New(t).Elem()); ok {
		return documented.SwaggerDoc()
	}
	return nil
}
