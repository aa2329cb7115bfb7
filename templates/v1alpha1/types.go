// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A ClusterSidecarTemplate defines a sidecar, and which pods of the cluster get it. The name of the
// template is also the prefix of its annotations, NAME.pillion.dev/PARAMETER.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=cst,categories=pillion
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",message="the name must be a DNS label: at most 63 of a-z, 0-9 and -"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.replaces) || self.spec.replaces != self.metadata.name",message="a template cannot replace itself; name another one, or leave replaces out",fieldPath=".spec.replaces"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Default",type=boolean,JSONPath=`.spec.default`
// +kubebuilder:printcolumn:name="Required",type=boolean,JSONPath=`.spec.required`
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.revision`
// +kubebuilder:printcolumn:name="Current",type=integer,JSONPath=`.status.pods.current`
// +kubebuilder:printcolumn:name="Outdated",type=integer,JSONPath=`.status.pods.outdated`
// +kubebuilder:printcolumn:name="Missing",type=integer,JSONPath=`.status.pods.missing`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type ClusterSidecarTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the content of the template. Pillion rejects a spec with a mistake.
	Spec Spec `json:"spec"`
	// status is what Pillion reports about the template.
	Status *Status `json:"status,omitempty"`
}

// A SidecarTemplate defines a sidecar, and which pods of its own namespace get it. The name of the
// template is also the prefix of its annotations, NAME.pillion.dev/PARAMETER. A
// ClusterSidecarTemplate with the same name takes precedence.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=sct,categories=pillion
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",message="the name must be a DNS label: at most 63 of a-z, 0-9 and -"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.replaces) || self.spec.replaces != self.metadata.name",message="a template cannot replace itself; name another one, or leave replaces out",fieldPath=".spec.replaces"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.match) || !has(self.spec.match.namespaceSelector)",message="a SidecarTemplate is only for the pods of its own namespace; leave out namespaceSelector, or use a ClusterSidecarTemplate",fieldPath=".spec.match"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Default",type=boolean,JSONPath=`.spec.default`
// +kubebuilder:printcolumn:name="Required",type=boolean,JSONPath=`.spec.required`
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.revision`
// +kubebuilder:printcolumn:name="Current",type=integer,JSONPath=`.status.pods.current`
// +kubebuilder:printcolumn:name="Outdated",type=integer,JSONPath=`.status.pods.outdated`
// +kubebuilder:printcolumn:name="Missing",type=integer,JSONPath=`.status.pods.missing`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type SidecarTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the content of the template. Pillion rejects a spec with a mistake.
	Spec Spec `json:"spec"`
	// status is what Pillion reports about the template.
	Status *Status `json:"status,omitempty"`
}

// Spec is the content of a template.
//
// +kubebuilder:validation:XValidation:rule="has(self.pod) || has(self.forEachContainer)",message="adds nothing: give it pod, forEachContainer or both"
// +kubebuilder:validation:XValidation:rule="!has(self.share) || has(self.replaces)",message="a share is for a template that replaces another one; set replaces, or leave share out",fieldPath=".share"
type Spec struct {
	// description says in a sentence what the sidecar is for.
	Description string `json:"description,omitempty"`
	// default is true if pods get the sidecar unless they opt out. If it is false, which is the
	// default, pods get it if their annotation pillion.dev/templates names it.
	Default bool `json:"default,omitempty"`
	// required is true if no pod may opt out. Pillion then denies pods that lack the sidecar. The
	// default is false.
	Required bool `json:"required,omitempty"`
	// order is the place of the template among others: Pillion applies templates by order, then by
	// name. The default is 0. Templates of the cluster come before those of the namespace.
	Order int `json:"order,omitempty"`
	// replaces is the name of another template, which this one replaces in the pods that it matches. A
	// pod gets this one if it would get the other one by default, by request, or because that is required.
	// The parameters of this template are set by the annotations of the other one,
	// REPLACES.pillion.dev/PARAMETER. A ClusterSidecarTemplate replaces another one of the cluster, and a
	// SidecarTemplate another one of its namespace.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Replaces string `json:"replaces,omitempty"`
	// share is the percentage of workloads in which this template replaces the other one: 10 for ten of a
	// hundred. A hash of namespace, workload and template selects them, so all pods of a workload
	// agree, and a higher share keeps those of a lower one. The default is 100.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Share int `json:"share,omitempty"`
	// match selects the pods of the template.
	Match Match `json:"match,omitzero"`
	// params are values that pods and namespaces may set by annotation. Expressions read them as
	// params.NAME.
	//
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Params []Param `json:"params,omitempty"`
	// variables are named expressions. Other expressions read them as variables.NAME. A variable can
	// read the parameters and the variables above it.
	//
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Variables []Variable `json:"variables,omitempty"`
	// pod is what the pod gets, in the syntax of Kubernetes. In metadata, it may have annotations and
	// labels. In spec, it may have initContainers, containers, volumes, imagePullSecrets, hostAliases,
	// tolerations, shareProcessNamespace, securityContext.fsGroup and securityContext.supplementalGroups.
	// Strings
	// may contain expressions, for example "--level=${params.level}". The key "${when}" leaves out an
	// object if its expression is false. For a native sidecar, use an init container with
	// restartPolicy: Always.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	Pod *PodFragment `json:"pod,omitempty"`
	// forEachContainer is what every app container of the pod gets.
	//
	// +listType=atomic
	ForEachContainer []ForEach `json:"forEachContainer,omitempty"`
	// labelDomains are the domains whose labels the template may set, in addition to its own
	// NAME.pillion.dev. No controller may select pods by such a label.
	//
	// +listType=set
	LabelDomains []string `json:"labelDomains,omitempty"`
	// annotationDomains are the domains of another product whose annotations the template reads in its place, for
	// example config.linkerd.io. Pillion warns about annotations of these domains that no template reads. Without this,
	// it warns only about probable typing errors.
	//
	// +listType=set
	AnnotationDomains []string `json:"annotationDomains,omitempty"`
	// placement is where the template's containers go in the lists of the pod.
	Placement Placement `json:"placement,omitzero"`
	// serviceAccountToken is Inherit, the default, if the sidecar gets the API token of the pod, or
	// None if it gets none.
	ServiceAccountToken TokenMode `json:"serviceAccountToken,omitempty"`
	// validate is what Pillion does about a pod that lacks the sidecar or changes it.
	Validate ValidateRules `json:"validate,omitzero"`
	// rollout is how pillion controller updates running pods after a change of the template. It does so only
	// in namespaces with the label pillion.dev/rollout: enabled, and not for templates of files.
	Rollout Rollout `json:"rollout,omitzero"`
}

// Rollout is how running pods are updated. The command pillion rollout respects minReady, bake and maxUnavailable too.
//
// +kubebuilder:validation:XValidation:rule="has(self.strategy) && self.strategy != 'OnCreate' || !has(self.first)",message="first is for the strategies InPlace and InPlaceOrRestart; set one, or leave first out",fieldPath=".first"
// +kubebuilder:validation:XValidation:rule="has(self.strategy) && self.strategy != 'OnCreate' || !has(self.waves)",message="waves is for the strategies InPlace and InPlaceOrRestart; set one, or leave waves out",fieldPath=".waves"
// +kubebuilder:validation:XValidation:rule="has(self.strategy) && self.strategy != 'OnCreate' || !has(self.scope)",message="scope is for the strategies InPlace and InPlaceOrRestart; set one, or leave scope out",fieldPath=".scope"
// +kubebuilder:validation:XValidation:rule="has(self.strategy) && self.strategy != 'OnCreate' || !has(self.onFailure)",message="onFailure is for the strategies InPlace and InPlaceOrRestart; set one, or leave onFailure out",fieldPath=".onFailure"
// +kubebuilder:validation:XValidation:rule="has(self.strategy) && self.strategy != 'OnCreate' || !has(self.maxUnavailable)",message="maxUnavailable is for the strategies InPlace and InPlaceOrRestart; set one, or leave maxUnavailable out",fieldPath=".maxUnavailable"
// +kubebuilder:validation:XValidation:rule="has(self.strategy) && self.strategy != 'OnCreate' || !has(self.paused) || !self.paused",message="with the strategy OnCreate, there is no rollout to pause; set InPlace or InPlaceOrRestart, or leave paused out",fieldPath=".paused"
type Rollout struct {
	// strategy selects the pods that get a change. With OnCreate, the default, these are new pods. With InPlace, the
	// controller also changes images and resources of the template's containers in running pods. With
	// InPlaceOrRestart, it also restarts workloads whose pods can only get the change when they are created.
	Strategy RolloutStrategy `json:"strategy,omitempty"`
	// first is the number of pods that change before all others, and have to be ready for the time of bake. The
	// default is 1. With 0, there is no such wave.
	//
	// +kubebuilder:validation:Minimum=0
	First *int32 `json:"first,omitempty"`
	// waves are the shares of all pods after which the rollout waits until the changed pods have been ready for the
	// time of bake, in ascending order. The default is 5%, 25%, 100%.
	//
	// +listType=atomic
	// +kubebuilder:validation:items:Pattern=`^([1-9][0-9]?|100)%$`
	Waves []string `json:"waves,omitempty"`
	// minReady is how long a changed pod must be ready, without an interruption, until another one may change
	// in its place, such as 30s. If minReadySeconds of the workload is longer, that counts. The default is 0s.
	//
	// +kubebuilder:validation:Pattern=`^([0-9]+(ms|s|m|h))+$`
	MinReady string `json:"minReady,omitempty"`
	// bake is the same for failures that come late: a changed pod keeps its place among the pods that may be
	// unavailable until it has been ready for that long, such as 5m. The longer one of bake and minReady counts.
	// The default is 90s.
	//
	// +kubebuilder:validation:Pattern=`^([0-9]+(ms|s|m|h))+$`
	Bake string `json:"bake,omitempty"`
	// maxUnavailable is the number or the percentage of a workload's pods that may be unready because of the rollout.
	// If others are unready, fewer pods change. A percentage is rounded down, but at least one pod changes. The
	// default is 25%. PodDisruptionBudgets may allow fewer.
	//
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) != int || self >= 1",message="must be a number of pods of at least 1, or a percentage such as 25%"
	// +kubebuilder:validation:Pattern=`^([1-9][0-9]?|100)%$`
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// scope is where a pod that fails stops the rollout: in its Namespace, the default, or in All namespaces.
	Scope RolloutScope `json:"scope,omitempty"`
	// onFailure is what the controller does if a pod fails. With Stop, the default, it changes nothing more there. With
	// Undo, it also gives the pods that it has changed in place the content again that they had before. The template
	// keeps its content, and the rollout stays stopped until the template changes.
	OnFailure RolloutOnFailure `json:"onFailure,omitempty"`
	// paused is true if the controller starts no further change. The default is false.
	Paused bool `json:"paused,omitempty"`
}

// RolloutScope is where a pod that fails stops a rollout.
//
// +kubebuilder:validation:Enum=Namespace;All
type RolloutScope string

// The scopes.
const (
	ScopeNamespace RolloutScope = "Namespace"
	ScopeAll       RolloutScope = "All"
)

// RolloutOnFailure is what the controller does if a pod fails.
//
// +kubebuilder:validation:Enum=Stop;Undo
type RolloutOnFailure string

// What the controller does if a pod fails.
const (
	StopOnFailure RolloutOnFailure = "Stop"
	UndoOnFailure RolloutOnFailure = "Undo"
)

// RolloutStrategy is when running pods get a change of their template.
//
// +kubebuilder:validation:Enum=OnCreate;InPlace;InPlaceOrRestart
type RolloutStrategy string

// The strategies.
const (
	OnCreate         RolloutStrategy = "OnCreate"
	InPlace          RolloutStrategy = "InPlace"
	InPlaceOrRestart RolloutStrategy = "InPlaceOrRestart"
)

// Acts reports whether the controller updates running pods.
func (r *Rollout) Acts() bool { return r.Strategy == InPlace || r.Strategy == InPlaceOrRestart }

// Match selects the pods of a template. An empty field matches every pod, unless it has a default.
type Match struct {
	// namespaceSelector selects namespaces by their labels. A SidecarTemplate has none.
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// podSelector selects pods by their labels.
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
	// condition is a CEL expression that is true for the pods that get the sidecar, for example
	// "!has(pod.spec.runtimeClassName)".
	Condition string `json:"condition,omitempty"`
	// os is the operating system of the pods: linux, the default, windows, or any. With any, the template has no field that
	// a pod on one of the systems cannot have.
	OS OS `json:"os,omitempty"`
	// hostNetwork is true if pods on the network of the host get the sidecar too. The default is
	// false.
	HostNetwork bool `json:"hostNetwork,omitempty"`
}

// OS selects pods by their operating system.
//
// +kubebuilder:validation:Enum=linux;windows;any
type OS string

// The operating systems.
const (
	Linux   OS = "linux"
	Windows OS = "windows"
	AnyOS   OS = "any"
)

// Includes reports whether pods for an operating system are selected. The default is Linux.
func (o OS) Includes(os corev1.OSName) bool {
	return o == AnyOS || o == OS(os) || o == "" && os == corev1.Linux
}

// Variable is a named expression.
type Variable struct {
	// name begins with a lower-case letter, and has only letters, digits and _.
	Name string `json:"name"`
	// expression is a CEL expression. Pillion evaluates it at most once for each pod.
	//
	// +kubebuilder:validation:MinLength=1
	Expression string `json:"expression"`
}

// PodFragment is a part of a pod with expressions. Pillion compiles it, so it has no fields here.
type PodFragment struct{}

// ContainerFragment is a part of a container with expressions. Pillion compiles it, so it has no
// fields here.
type ContainerFragment struct{}

// ForEach is what app containers get.
type ForEach struct {
	// where is a CEL expression that is true for the containers that get it, for example
	// "container.name != 'migrate'". By default, all do.
	Where string `json:"where,omitempty"`
	// initContainers is true if init containers get it too. The default is false.
	InitContainers bool `json:"initContainers,omitempty"`
	// add is what the containers get, in the syntax of Kubernetes: env, envFrom, volumeMounts,
	// volumeDevices, ports, resources, securityContext and lifecycle. Strings may contain expressions.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	Add ContainerFragment `json:"add"`
}

// Placement is where the template's containers go. Those of one list stay next to each other, in the
// template's order, because init containers start in the order of their list.
type Placement struct {
	// initContainers is First, Last, {after: NAME} or {before: NAME}. A single ${...} can decide between
	// First and Last. By default, it is First if one of the template's init containers is a native sidecar,
	// which then serves the pod's own ones too. Otherwise, it is Last. In a list, such as
	// [{after: NAME}, First], the first position counts whose container the pod has.
	//
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	InitContainers Positions `json:"initContainers,omitzero"`
	// containers is First, Last, {after: NAME}, {before: NAME}, one ${...} that gives First or
	// Last, or a list of these. The default is Last.
	//
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Containers Positions `json:"containers,omitzero"`
}

// Positions are positions in a list of containers, the preferred one first. The one that counts is the first one with a container
// that the pod has, or with none. In a loaded template, the last one is an end.
type Positions []Position

// UnmarshalJSON reads a list of positions, or one position.
func (p *Positions) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '[' {
		return json.Unmarshal(data, (*[]Position)(p))
	}
	*p = make(Positions, 1)
	return json.Unmarshal(data, &(*p)[0])
}

// Position is a position in a list of containers: an end, or next to a container.
type Position struct {
	// End can be a ${...} in a template.
	End    End    `json:"-"`
	After  string `json:"after,omitempty"`
	Before string `json:"before,omitempty"`
}

// Container returns the name of the container that the position is next to, or "" for an end.
func (p Position) Container() string { return p.After + p.Before }

// UnmarshalJSON reads an end or an object.
func (p *Position) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, &p.End)
	}
	type object Position
	return json.Unmarshal(data, (*object)(p))
}

// End is an end of a list of containers.
type End string

// The ends of a list of containers.
const (
	First End = "First"
	Last  End = "Last"
)

// TokenMode defines the mount in an injected container at the path where the ServiceAccount
// admission plugin would mount the pod's API token.
//
// +kubebuilder:validation:Enum=Inherit;None
type TokenMode string

// Inherit mounts the token as the plugin would. None mounts an empty volume there, so that the
// sidecar gets no credential.
const (
	Inherit TokenMode = "Inherit"
	None    TokenMode = "None"
)

// ValidateRules define what the validating webhook does about a final pod.
type ValidateRules struct {
	// mode is Deny, the default of a required template, or Warn, the default of others.
	Mode ValidateMode `json:"mode,omitempty"`
	// protect lists the fields of the template's containers that must keep their values, for example
	// image. The value all means all fields except resources, and is the default of a required
	// template. It allows that others add items to env, envFrom, ports, volumeDevices and volumeMounts, and settings to
	// securityContext that harden the container, unless you name these too. By default, other templates protect no field.
	//
	// +listType=set
	Protect []string `json:"protect,omitempty"`
}

// ValidateMode is Deny or Warn.
//
// +kubebuilder:validation:Enum=Deny;Warn
type ValidateMode string

// The modes of validation.
const (
	Deny ValidateMode = "Deny"
	Warn ValidateMode = "Warn"
)

// Status is what Pillion reports about a template.
type Status struct {
	// conditions has the condition Ready. It is False if the template has a mistake, if another
	// template has its name, or if it cannot replace the template that it names. If spec.rollout has a
	// strategy, there are also Progressing, Degraded (with the pod and the reason) and Paused.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// revision identifies the content that is in use. Pods with the sidecar have it in their
	// annotation NAME.pillion.dev/injected.
	Revision string `json:"revision,omitempty"`
	// pods are the numbers of pods that have the sidecar, or should have it.
	Pods *PodCounts `json:"pods,omitempty"`
	// failed is what has stopped the rollout, in each namespace. The condition Degraded has the reason.
	//
	// +listType=map
	// +listMapKey=namespace
	Failed []FailedRollout `json:"failed,omitempty"`
	// history is the contents that the template has or had, as the controller has recorded them. The newest one is the first.
	// pillion rollout undo uses no others.
	//
	// +listType=atomic
	History []RecordedContent `json:"history,omitempty"`
}

// RecordedContent is a content that the template has or had: its spec without rollout.
type RecordedContent struct {
	// revision is the number of the content. It is higher than that of each content that the template had before.
	Revision int64 `json:"revision"`
	// hash is what pods with this content have in their annotation NAME.pillion.dev/injected.
	Hash string `json:"hash"`
	// digest is the SHA-256 of the content.
	Digest string `json:"digest"`
	// changed is when the template last got the content.
	Changed metav1.Time `json:"changed"`
	// object is the name of the ControllerRevision that has the content.
	Object string `json:"object"`
}

// FailedRollout is what has stopped a rollout.
type FailedRollout struct {
	// namespace is that of the workload.
	Namespace string `json:"namespace"`
	// workload is KIND/NAME, for example Deployment/web.
	Workload string `json:"workload"`
	// pod is the name of the pod that failed, if it was one.
	Pod string `json:"pod,omitempty"`
	// reason is why.
	Reason string `json:"reason,omitempty"`
	// undo is how far the controller is with putting back what it has changed, if rollout.onFailure is Undo.
	Undo *RolloutUndo `json:"undo,omitempty"`
}

// RolloutUndo is how far the controller is with putting pods back to the content that they had before.
type RolloutUndo struct {
	// done is true if no other pod can be put back.
	Done bool `json:"done"`
	// pods is the number of pods that were put back.
	Pods int64 `json:"pods"`
	// message is about pods that were not put back, if there are some.
	Message string `json:"message,omitempty"`
}

// ConditionReady is the type of the condition that reports whether Pillion uses the template.
const ConditionReady = "Ready"

// The types of the conditions of a rollout.
const (
	ConditionProgressing = "Progressing"
	ConditionDegraded    = "Degraded"
	ConditionPaused      = "Paused"
)

// The reasons of the condition.
const (
	ReasonValid     = "Valid"
	ReasonInvalid   = "Invalid"
	ReasonNameTaken = "NameTaken"
	ReasonTooMany   = "TooMany"
	// ReasonCannotReplace is for a template that cannot replace the one that spec.replaces names.
	ReasonCannotReplace = "CannotReplace"
)

// The reasons of the conditions of a rollout.
const (
	// ReasonUpdating is of Progressing: pods are being changed.
	ReasonUpdating = "Updating"
	// ReasonComplete is of Progressing: all pods are current.
	ReasonComplete = "Complete"
	// ReasonIncomplete is of Progressing: all pods that are not current need what the controller may not do.
	ReasonIncomplete = "Incomplete"
	// ReasonStopped is of Progressing, if Degraded has the reason.
	ReasonStopped = "Stopped"
	// ReasonCannotPlan is of Progressing: what to do cannot be found out.
	ReasonCannotPlan = "CannotPlan"
	// ReasonFailed is of Degraded: a pod or a workload has failed after a change.
	ReasonFailed = "Failed"
	// ReasonUndone is of Degraded: a pod has failed, and those that had changed have again what they had before.
	ReasonUndone = "Undone"
	// ReasonUndoing is of Progressing: pods get again what they had before.
	ReasonUndoing = "Undoing"
	// ReasonForbidden is of Degraded: the controller lacks a right.
	ReasonForbidden = "Forbidden"
	// ReasonAsExpected is of Degraded, if it is False.
	ReasonAsExpected = "AsExpected"
	// ReasonPaused is of Paused and Progressing.
	ReasonPaused = "Paused"
	// ReasonNotPaused is of Paused, if it is False.
	ReasonNotPaused = "NotPaused"
)

// PodCounts are numbers of pods.
type PodCounts struct {
	// current is the number of pods with the revision in use.
	Current int64 `json:"current"`
	// outdated is the number of pods with another revision.
	Outdated int64 `json:"outdated"`
	// missing is the number of pods that should have the sidecar and lack it, as pillion status counts them. It is
	// absent if that is not known.
	Missing *int64 `json:"missing,omitempty"`
	// updated is the number of pods with the revision in use, in the namespaces in which the controller
	// updates pods. It is absent if spec.rollout has no strategy for that.
	Updated *int64 `json:"updated,omitempty"`
}
