// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-helpers/auth/rbac/validation"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

// right is one verb on one object of one resource; the name * is any, and the namespace * is any.
type right struct{ namespace, group, resource, name, verb string }

// rights are what a token may do.
type rights map[right]bool

// add breaks rules down with Kubernetes' own function, because this module cannot import Pillion.
func (r rights) add(namespace string, rules ...rbacv1.PolicyRule) {
	for _, rule := range rules {
		for _, one := range validation.BreakdownRule(rule) {
			switch {
			case len(one.NonResourceURLs) > 0:
				r[right{namespace, "URL", one.NonResourceURLs[0], "*", one.Verbs[0]}] = true
			case len(one.ResourceNames) > 0:
				r[right{namespace, one.APIGroups[0], one.Resources[0], one.ResourceNames[0], one.Verbs[0]}] = true
			default:
				r[right{namespace, one.APIGroups[0], one.Resources[0], "*", one.Verbs[0]}] = true
			}
		}
	}
}

// has is what an authorizer says.
func (r rights) has(asked right) bool {
	for _, namespace := range []string{asked.namespace, "*"} {
		for _, name := range []string{asked.name, "*"} {
			if r[right{namespace, asked.group, asked.resource, name, asked.verb}] {
				return true
			}
		}
	}
	return false
}

// limits are the policies that limit what a right that RBAC cannot limit to fields is for, by the account that has it.
func limits(account string, one right) string {
	switch {
	case slices.Contains([]string{"get", "list", "watch"}, one.verb):
	case account == serverAccount && strings.HasSuffix(one.resource, "webhookconfigurations"):
		return bundlePolicy
	case account == controllerAccount && (one.group == "apps" || one.group == "" && strings.HasPrefix(one.resource, "pods")):
		return rolloutPolicy
	}
	return ""
}

// The ServiceAccounts.
const (
	serverAccount     = "pillion"
	controllerAccount = "pillion-controller"
)

// accounts are all ServiceAccounts that the manifests have.
func accounts() []string { return []string{serverAccount, controllerAccount} }

// lines has one for each object, without those of others.
func (r rights) lines(account string, others rights) []string {
	verbs, limited := map[string][]string{}, map[string]string{}
	for one := range r {
		if others[one] {
			continue
		}
		where := "everywhere"
		if one.namespace != "*" {
			where = "in " + one.namespace
		}
		resource := one.resource
		if one.group != "" {
			resource += "." + one.group
		}
		may := "may change"
		if slices.Contains([]string{"get", "list", "watch"}, one.verb) {
			may = "may read"
		}
		line := fmt.Sprintf("  %-10s %-17s %s/%s: ", may, where, resource, one.name)
		if policy := limits(account, one); policy != "" {
			limited[line] = ", limited by the policy " + policy
		}
		verbs[line] = append(verbs[line], one.verb)
	}
	var all []string
	for _, line := range slices.Sorted(maps.Keys(verbs)) {
		slices.Sort(verbs[line])
		all = append(all, line+strings.Join(verbs[line], ", ")+limited[line])
	}
	return all
}

// limitedBy returns the policies that limit some of the rights of an account.
func (r rights) limitedBy(account string) (policies []string) {
	for one := range r {
		if policy := limits(account, one); policy != "" && !slices.Contains(policies, policy) {
			policies = append(policies, policy)
		}
	}
	return policies
}

// grants are the rights of each ServiceAccount.
type grants map[string]rights

// rbacOf are the RBAC objects that a kustomization renders to, and what they give each ServiceAccount.
func rbacOf(t *testing.T, target string, components ...string) (objects []byte, given grants) {
	t.Helper()
	rendered, err := env.RunKubectl(testContext(t), nil, "kustomize", kustomization(t, target, components...))
	if err != nil {
		t.Fatal(err)
	}
	type document struct {
		metav1.PartialObjectMetadata
		Rules    []rbacv1.PolicyRule
		RoleRef  rbacv1.RoleRef
		Subjects []rbacv1.Subject
	}
	rules, bindings := map[string][]rbacv1.PolicyRule{}, []document{}
	for _, text := range documents(t, &cluster.Manifests{Rest: rendered}) {
		var d document
		if err := yaml.Unmarshal(text, &d); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(d.APIVersion, rbacv1.GroupName+"/") {
			continue
		}
		objects = append(append(objects, "---\n"...), text...)
		if d.RoleRef.Name != "" {
			bindings = append(bindings, d)
		} else {
			rules[d.Kind+d.Namespace+"/"+d.Name] = d.Rules
		}
	}
	given = grants{serverAccount: {}, controllerAccount: {}}
	for _, b := range bindings {
		role, namespace := b.RoleRef.Kind+"/"+b.RoleRef.Name, "*"
		if b.Kind == "RoleBinding" {
			namespace = b.Namespace
		}
		if b.RoleRef.Kind == "Role" {
			role = b.RoleRef.Kind + b.Namespace + "/" + b.RoleRef.Name
		}
		if rules[role] == nil {
			t.Errorf("%s with %v: the %s %s/%s is for a role of another component, %s", target, components, b.Kind, b.Namespace, b.Name, role)
		}
		if len(b.Subjects) != 1 || given[b.Subjects[0].Name] == nil || b.Subjects[0] != (rbacv1.Subject{Kind: "ServiceAccount", Namespace: pillionNamespace, Name: b.Subjects[0].Name}) {
			t.Fatalf("%s with %v: the %s %s/%s is for %v", target, components, b.Kind, b.Namespace, b.Name, b.Subjects)
		}
		given[b.Subjects[0].Name].add(namespace, rules[role]...)
	}
	// TestStolenToken and TestStolenControllerToken show what the policies mean.
	for account, policy := range map[string]string{serverAccount: bundlePolicy, controllerAccount: rolloutPolicy} {
		if limited := strings.Contains(string(rendered), "policyName: "+policy+"\n"); limited != slices.Contains(given[account].limitedBy(account), policy) {
			t.Errorf("%s with %v: %s has rights that a policy must limit: %t; the policy %s is there: %t", target, components, account, !limited, policy, limited)
		}
	}
	return objects, given
}

// allComponents are the folders of components.
func allComponents(t *testing.T) (names []string) {
	t.Helper()
	root, err := cluster.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	folders, err := filepath.Glob(filepath.Join(root, "manifests", "components", "*"))
	if err != nil || len(folders) == 0 {
		t.Fatal("no components", err)
	}
	for _, folder := range folders {
		names = append(names, filepath.Base(folder))
	}
	return names
}

// TestRights checks that testdata/rights lists the rights of each token, with each overlay, alone and with each component,
// and that a real API server grants exactly these.
func TestRights(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	text := "apiVersion: v1\nkind: Namespace\nmetadata: {name: pillion-system}\n"
	for _, account := range accounts() {
		text += "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: " + account + ", namespace: pillion-system}\n"
	}
	if _, err := c.RunKubectl(testContext(t), []byte(text), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{"base", "overlays/cert-manager", "overlays/self-signed"} {
		objects, alone := rbacOf(t, target)
		wantRights(t, c, objects, alone)
		lines := map[string][]string{}
		for _, account := range accounts() {
			lines[account] = append([]string{target}, alone[account].lines(account, nil)...)
		}
		for _, component := range componentsOfPillion(t) {
			objects, with := rbacOf(t, target, component)
			changes := false
			for _, account := range accounts() {
				more, fewer := with[account].lines(account, alone[account]), alone[account].lines(account, with[account])
				changes = changes || len(more)+len(fewer) > 0
				if len(more) > 0 {
					lines[account] = append(append(lines[account], "with components/"+component+", also"), more...)
				}
				if len(fewer) > 0 {
					lines[account] = append(append(lines[account], "with components/"+component+", without"), fewer...)
				}
				if len(more)+len(fewer) == 0 {
					lines[account] = append(lines[account], "with components/"+component+", nothing else")
				}
			}
			if changes {
				wantRights(t, c, objects, with)
			}
		}
		wantGolden(t, filepath.Join("testdata", "rights", filepath.Base(target)+".txt"), strings.Join(lines[serverAccount], "\n")+"\n")
		wantGolden(t, filepath.Join("testdata", "rights", filepath.Base(target)+"-controller.txt"), strings.Join(lines[controllerAccount], "\n")+"\n")
	}
	objects, all := rbacOf(t, "overlays/self-signed", componentsOfPillion(t)...)
	whileApplied(t, c, objects, func() {
		eventually(t, "the rights are there", func(ctx context.Context) error { return sameRights(ctx, c, all) })
		for _, account := range accounts() {
			askForAll(t, c, account, all[account])
		}
	})
}

// wantGolden compares with a golden file.
func wantGolden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// whileApplied runs f while the objects are there.
func whileApplied(t *testing.T, c *cluster.Cluster, objects []byte, f func()) {
	t.Helper()
	if _, err := c.RunKubectl(testContext(t), objects, "apply", "--server-side", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	f()
	if _, err := c.RunKubectl(testContext(t), objects, "delete", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

func wantRights(t *testing.T, c *cluster.Cluster, objects []byte, want grants) {
	t.Helper()
	whileApplied(t, c, objects, func() {
		eventually(t, "the tokens have the rights", func(ctx context.Context) error { return sameRights(ctx, c, want) })
	})
}

// sameRights compares the rights with those that the API server reports for the tokens
// (SelfSubjectRulesReview), except for those of every ServiceAccount.
func sameRights(ctx context.Context, c *cluster.Cluster, want grants) error {
	everybody, err := rightsOf(ctx, c, "default")
	if err != nil {
		return err
	}
	for _, account := range accounts() {
		got, err := rightsOf(ctx, c, account)
		if err != nil {
			return err
		}
		for one := range everybody {
			delete(got, one)
		}
		if !maps.Equal(got, want[account]) {
			return fmt.Errorf("%s has more:\n%s\nmissing:\n%s", account, strings.Join(got.lines(account, want[account]), "\n"), strings.Join(want[account].lines(account, got), "\n"))
		}
	}
	return nil
}

func rightsOf(ctx context.Context, c *cluster.Cluster, account string) (rights, error) {
	token, err := c.Client.CoreV1().ServiceAccounts(pillionNamespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	config := rest.CopyConfig(c.Config)
	config.BearerToken = token.Status.Token
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	all := map[string]rights{}
	for _, namespace := range []string{"default", pillionNamespace} {
		review, err := client.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx,
			&authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		if review.Status.EvaluationError != "" && review.Status.Incomplete && !strings.Contains(review.Status.EvaluationError, "node authorizer") {
			return nil, fmt.Errorf("the API server does not know: %s", review.Status.EvaluationError)
		}
		all[namespace] = rights{}
		for _, rule := range review.Status.ResourceRules {
			all[namespace].add("*", rbacv1.PolicyRule{Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames})
		}
		for _, rule := range review.Status.NonResourceRules {
			all[namespace].add("*", rbacv1.PolicyRule{Verbs: rule.Verbs, NonResourceURLs: rule.NonResourceURLs})
		}
	}
	got := all["default"]
	for one := range all[pillionNamespace] {
		if !got[one] {
			one.namespace = pillionNamespace
			got[one] = true
		}
	}
	return got, nil
}

// askForAll asks the API server about every verb on every resource and subresource that it has, on objects of
// various names, here and there: what is allowed is what the rights say, or allowed to every ServiceAccount.
func askForAll(t *testing.T, c *cluster.Cluster, account string, want rights) {
	t.Helper()
	_, lists, err := c.Client.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string][]string{}
	for one := range want {
		names[one.resource] = append(names[one.resource], one.name)
	}
	var questions []right
	for _, list := range lists {
		group, _, _ := strings.Cut(list.GroupVersion, "/")
		if list.GroupVersion == "v1" {
			group = ""
		}
		for _, r := range list.APIResources {
			own := append([]string{"", "other", "pillion"}, names[r.Name]...)
			slices.Sort(own)
			for _, name := range slices.Compact(own) {
				for _, namespace := range []string{"", "default", pillionNamespace} {
					for verb := range strings.FieldsSeq("get list watch create update patch delete deletecollection bind escalate impersonate approve sign attest use") {
						if name != "*" {
							questions = append(questions, right{namespace, group, r.Name, name, verb})
						}
					}
				}
			}
		}
	}
	allowed := func(ctx context.Context, user string, q right) (bool, error) {
		resource, sub, _ := strings.Cut(q.resource, "/")
		review, err := c.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   "system:serviceaccount:" + pillionNamespace + ":" + user,
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + pillionNamespace, "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: q.namespace, Verb: q.verb, Group: q.group, Resource: resource, Subresource: sub, Name: q.name,
			},
		}}, metav1.CreateOptions{})
		if err != nil {
			return false, err
		}
		return review.Status.Allowed, nil
	}
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(8)
	for _, q := range questions {
		group.Go(func() error {
			got, err := allowed(ctx, account, q)
			if err != nil || got == want.has(q) {
				return err
			}
			if everybody, err := allowed(ctx, "default", q); err != nil || everybody {
				return err
			}
			t.Errorf("%s: %+v is allowed: %t", account, q, got)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d questions", len(questions))
}

// componentsOfPillion are all components but the one that gives rights to users, see TestCheck/developer.
func componentsOfPillion(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(allComponents(t), func(name string) bool { return name == "viewers" })
}
