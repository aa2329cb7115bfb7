// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/pillion-dev/pillion/manifests"
)

// checkAPIServer checks the version. The API server answered, otherwise there would be none.
func checkAPIServer(gitVersion string, c Commands) Check {
	check := Check{Group: ofCluster, Name: "API server", Result: OK, Message: "version " + gitVersion}
	const oldest, newest = manifests.MinKubernetes, manifests.MaxKubernetes
	v, err := version.ParseGeneric(gitVersion)
	if gitVersion == "" {
		check.Message = "you are not allowed to read its version"
	}
	switch {
	case err != nil:
		check.Result = NotChecked
		check.Hint, check.Command = "Pillion needs Kubernetes "+oldest+" or later:", c.Kubectl+" version"
	case v.LessThan(version.MustParseGeneric(oldest)):
		check.Result = Failed
		check.Hint, check.Command = "Upgrade the cluster: Pillion needs Kubernetes "+oldest+" or later:", c.Kubectl+" version"
	case v.WithPatch(0).GreaterThan(version.MustParseGeneric(newest)):
		check.Result, check.Message = Warning, check.Message+" is newer than those that this version of Pillion is tested on"
		check.Hint, check.Command = "Pillion is tested on Kubernetes "+oldest+" to "+newest+". Look for a newer Pillion, and see yours:", "pillion version"
	}
	return check
}

func (f *Facts) checkRights() Check {
	c := Check{Group: ofCluster, Name: "RBAC", Result: OK, Message: fmt.Sprintf("the ServiceAccounts have all %d rights that they need", f.Rights.Checked)}
	if f.Rights.Unknown != "" {
		c.Result, c.Message = NotChecked, f.Rights.Unknown
		c.Hint, c.Command = "Ask an administrator to run this command, or for this right:", f.Commands.Kubectl+" auth can-i create subjectaccessreviews.authorization.k8s.io"
		return c
	}
	lacking := 0
	var more []string
	for _, account := range []string{manifests.Name, manifests.ControllerName} {
		denied := f.Rights.Denied[account]
		lacking += len(denied)
		for _, item := range listRights(denied) {
			c.Details = append(c.Details, account+" may not "+item)
		}
		for _, item := range listRights(f.Rights.Excess[account]) {
			more = append(more, account+" may "+item+" in all namespaces")
		}
	}
	unlimited := f.Rights.listUnlimited()
	switch {
	case lacking == 0 && len(more) > 0:
		c.Result, c.Message, c.Details = Warning, "the ServiceAccounts have rights that they do not need", append(more, unlimited...)
		c.Hint, c.Command = "Find the roles that are bound to them:", f.Commands.Kubectl+" get rolebindings,clusterrolebindings -A -o wide"
	case lacking == 0 && len(unlimited) > 0 && slices.ContainsFunc(f.Rights.Unlimited, func(u Unlimited) bool { return u.Unknown == "" }):
		c.Result, c.Message, c.Details = Warning, "a ServiceAccount may change more than it needs, because a policy is not in force", unlimited
		c.Hint, c.Command = applyAgain, f.Commands.Kubectl+" "+applyCommand
	case lacking == 0 && len(unlimited) > 0:
		c.Result, c.Message, c.Details = NotChecked, "whether a policy limits the rights of a ServiceAccount is unknown", unlimited
		c.Hint, c.Command = "Ask an administrator to run this command, or for this right:", f.Commands.Kubectl+" auth can-i get validatingadmissionpolicybindings.admissionregistration.k8s.io"
	case lacking > 0:
		c.Result, c.Message = Failed, "the ServiceAccounts lack "+formatCount(lacking, "right")
		c.Hint, c.Command = applyAgain, f.Commands.Kubectl+" "+applyCommand
	}
	return c
}

func (r *AccountRights) listUnlimited() (items []string) {
	for _, u := range r.Unlimited {
		text := fmt.Sprintf("%s may %s, and the ValidatingAdmissionPolicy %s is not in force", u.Account, u.Right, u.Policy)
		if u.Unknown != "" {
			text = fmt.Sprintf("%s may %s; whether the ValidatingAdmissionPolicy %s is in force is unknown: %s", u.Account, u.Right, u.Policy, u.Unknown)
		}
		items = append(items, text)
	}
	return items
}

func (f *Facts) checkKinds() Check {
	c := Check{Group: ofCluster, Name: "kinds of templates", Result: OK, Message: "established"}
	found := 0
	for _, k := range f.Kinds {
		if k.Found {
			found++
		}
		switch {
		case k.Unknown != "":
			c.Result, c.Message = NotChecked, k.Unknown
			c.Hint, c.Command = "Ask for the verb get on the resource customresourcedefinitions:", f.Commands.Kubectl+" auth can-i get customresourcedefinitions.apiextensions.k8s.io"
			return c
		case !k.Found:
			c.Details = append(c.Details, k.Name+" is not installed")
		case !k.Established:
			c.Details = append(c.Details, k.Name+" is not established: "+k.Why)
		}
	}
	switch {
	case found == 0 && f.Controller.Unknown != "":
		c.Result, c.Message = NotChecked, "the API server serves none, as if they were deleted, or with the component no-custom-resources"
		c.Hint, c.Command = "If templates are objects here, the kinds are missing. Ask an administrator to run this command:", f.Commands.Pillion("check")
	case found == 0 && !f.Controller.Found:
		c.Message, c.Details = "not installed, as with the component no-custom-resources; all templates are in ConfigMaps", nil
	case len(c.Details) > 0:
		c.Result, c.Message = Failed, "the API server does not serve all kinds"
		c.Hint, c.Command = applyAgain, f.Commands.Kubectl+" "+applyCommand
	}
	return c
}
