// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Likeness identifies pods that need the same: those of one owner with the same labels, annotations and spec, for example of a
// ReplicaSet. It leaves out what is different in each pod and does not matter for a plan: a generated name, the node, addresses,
// the name of the volume of the API token, and most of the status. Templates may read names, labels and volumes, so pods of a
// StatefulSet are not alike: the controller gives each of them its own.
type Likeness [sha256.Size]byte

// MaxLikenesses limits what is kept for pods that are alike: users can make many pods that all differ.
const MaxLikenesses = 1000

// tokenVolume begins the name of the volume that the API server adds for the API token. The rest is random.
const tokenVolume = "kube-api-access-"

// LikenessOf returns the likeness of a pod. It returns an error if the pod is not JSON.
func LikenessOf(pod []byte) (of Likeness, err error) {
	root, err := jsontree.Parse(pod)
	if err != nil {
		return of, fmt.Errorf("%w: %w", errNotAPod, err)
	}
	hash, token := sha256.New(), ""
	write := func(name, text string) {
		if token != "" {
			text = strings.ReplaceAll(text, token, tokenVolume)
		}
		_, _ = fmt.Fprintf(hash, "%s %d %s\n", name, len(text), text)
	}
	metadata, spec := root.At("metadata"), root.At("spec")
	for i := range metadata.Members() {
		switch m := &metadata.Members()[i]; m.Name() {
		case "uid", "resourceVersion", "generation", "selfLink", "creationTimestamp":
		case "name": // expressions may read one that the API server has not generated
			if !cel.HasGeneratedName(metadata) {
				write(m.Name(), m.String())
			}
		case "annotations":
			for i := range m.Members() {
				if a := &m.Members()[i]; a.Name() != AnnotationUnproved {
					write("annotation "+a.Name(), a.String())
				}
			}
		case "managedFields":
			writeManagers(write, m, timeOf(metadata.Get("creationTimestamp")))
		default:
			write(m.Name(), m.String())
		}
	}
	volumes := spec.Get("volumes").Items()
	for i := range volumes {
		if name := volumes[i].Get("name").Text(); strings.HasPrefix(name, tokenVolume) {
			token = name
		}
	}
	for i := range spec.Members() {
		if m := &spec.Members()[i]; m.Name() != "nodeName" {
			write(m.Name(), m.String())
		}
	}
	write("phase", root.At("status", "phase").String())
	return Likeness(hash.Sum(nil)), nil
}

// writeManagers writes what the managed fields say about who changed the pod since it was created, see [managers]. Fields of
// the status have addresses.
func writeManagers(write func(name, text string), fields *jsontree.Node, created time.Time) {
	for i := range fields.Items() {
		e := &fields.Items()[i]
		if e.Get("subresource").IsText("status") {
			continue
		}
		for _, name := range []string{"manager", "operation", "subresource", "fieldsV1"} {
			write(name, e.Get(name).String())
		}
		write("after", fmt.Sprint(timeOf(e.Get("time")).After(created.Add(time.Second))))
	}
}

// timeOf returns the time of a field, or the zero time.
func timeOf(n *jsontree.Node) time.Time {
	at, err := time.Parse(time.RFC3339, n.Text())
	if err != nil {
		return time.Time{}
	}
	return at
}

// For returns the plan for another pod with the same likeness. The plan that it is made from must not need its patches any more,
// see [Pod.Forget].
func (o *Pod) For(name, uid string, ready bool) *Pod {
	same := *o
	same.Name, same.UID, same.Ready = name, uid, ready
	return &same
}
