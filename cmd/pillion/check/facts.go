// SPDX-License-Identifier: Apache-2.0

package check

import (
	"github.com/pillion-dev/pillion/certs"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/manifests"
)

// Commands are the beginnings of commands for the same cluster.
type Commands struct {
	Kubectl string
	// Pillion returns the command with the flags that select the cluster, for example for "certs".
	Pillion func(command string) string
}

// Facts are what the checks after the installation read. A field named Unknown is the reason why
// the rest is unknown, or "".
type Facts struct {
	Commands  Commands
	Namespace string // Pillion's
	Version   string // of the API server, for example v1.36.2
	Rights    AccountRights
	Kinds     []Kind
	Chain     certs.Chain
	// ChainUnknown is why the Chain is unknown, or "".
	ChainUnknown string
	Server       Deployment
	Replicas     Replicas
	Controller   Deployment
	Templates    Templates
	Namespaces   Namespaces
	Probe        Probe
}

// Unanswered begins a reason why facts are unknown that is no lack of rights: the API server did not answer, or with an error.
const Unanswered = "the API server gave no answer "

// NotAllowed begins a reason why facts are unknown that is a lack of rights.
const NotAllowed = "you are not allowed to "

// AccountRights are the rights that ServiceAccounts need and lack, by the name of the account.
type AccountRights struct {
	Unknown string
	Denied  map[string][]manifests.Right
	Excess  map[string][]manifests.Right // of the rights that [Unneeded] returns
	Checked int
	// Unlimited are those that may patch whole objects, because the policy that limits them is not in force.
	Unlimited []Unlimited
}

// Unlimited is a ServiceAccount that a policy has to limit.
type Unlimited struct {
	manifests.Limited
	Unknown string // why it is unknown whether the policy is in force, or ""
}

// Kind is a CustomResourceDefinition of Pillion.
type Kind struct {
	Name        string
	Found       bool
	Established bool
	Why         string // why it is not established
	Unknown     string
}

// Deployment is a Deployment of Pillion.
type Deployment struct {
	Name                   string
	Found                  bool
	Wanted, Ready, Updated int
	Unknown                string
}

// Replicas are the running replicas of pillion serve.
type Replicas struct {
	Unknown string
	All     []Replica
}

// Replica is what a replica answers to /readyz?verbose.
type Replica struct {
	Pod     string
	Answer  string
	Unknown string
}

// Templates are the templates of the cluster.
type Templates struct {
	Unknown  string
	Allow    string // the command with which an administrator gives the right to read them, if the user lacks it
	Valid    int
	Problems []string // sentences about invalid templates
	Objects  []Template
	Running  int      // automatic rollouts
	Stopped  []string // sentences about automatic rollouts that have stopped or are undone
}

// Template is the condition Ready of a template object.
type Template struct {
	ID              string // as in messages, for example sidecartemplate/team-a/agent
	Status          string // True, False or Unknown; "": there is no condition
	Reason, Message string
	Outdated        bool // the condition is about former content
}

// Namespaces are the namespaces by their label.
type Namespaces struct {
	Unknown string
	OptedIn []string
	Shadow  []string
	Wrong   []string // with a label value that has no meaning, and the value
}

// Probe is the pod that was sent as a dry run.
type Probe struct {
	Namespace  string   // "": none was sent
	Requested  string   // the template that the pod requests, or ""
	Expected   []string // the templates that the pod should get
	Got        []string // the templates that the pod got
	Containers []string // the containers that the pod got
	Denied     string   // the API server's message
	Of         string   // if none was sent because the user may not: the object whose pods the API server denied
	Timeout    string   // what shows that Pillion does not answer the API server in time, or ""
	Missing    bool     // there is no namespace with that name
	Unknown    string
	NoRight    bool // Unknown is that the user is not allowed to create pods
}

// Sent reports whether the pod's fate says something about Pillion: it was accepted, or Pillion is why it was not.
func (p *Probe) Sent() bool {
	if p.Timeout != "" {
		return true
	}
	why, _ := explain.ParseDenial(p.Denied, explain.Help{})
	return p.Unknown == "" && (p.Denied == "" && len(p.Expected) > 0 || why.Pillions)
}

// PreFacts are what the checks before the installation read.
type PreFacts struct {
	Commands    Commands
	Namespace   string // where Pillion is to be installed
	Overlay     string
	Version     string
	Sidecars    Sidecars
	Denied      []manifests.Right
	Rights      int    // number of rights that were checked
	NoRights    string // why they are unknown
	CertManager bool   // the cluster has its kinds
	// NoCertManager is why CertManager is unknown, or "".
	NoCertManager string
	Others        Others
}

// Sidecars reports whether the API server keeps restartPolicy of init containers.
type Sidecars struct {
	Supported bool
	Unknown   string
}

// Others are webhook configurations with webhooks of Pillion.
type Others struct {
	Unknown string
	All     []Other
}

// Other is such a webhook configuration.
type Other struct {
	Title     string // Kind/name
	Own       bool   // this installation has that name
	Namespace string // of the Service, or "" if API servers call a URL
}
