// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// checkDamage checks that another image, a command, or a missing container is denied.
func checkDamage(t *testing.T, injector *inject.Injector, template *templates.Template, pod []byte) (damaged int) {
	t.Helper()
	deny := func(what string, damage func(container map[string]any) bool) {
		doc := decodeJSON(t, pod).(map[string]any)
		spec := doc["spec"].(map[string]any)
		found := false
		for _, name := range []string{"initContainers", "containers"} {
			list, _ := spec[name].([]any)
			spec[name] = slices.DeleteFunc(list, func(c any) bool {
				own := template.Brings(fmt.Sprint(c.(map[string]any)["name"]))
				found = found || own
				return own && !damage(c.(map[string]any))
			})
		}
		if !found {
			return
		}
		text, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		damaged++
		v := mustJudge(t, inject.NewJudge(injector, nil, true), inject.Request{Operation: "CREATE", OptedIn: true, Namespace: request.Namespace{Name: "shop"}, Object: text})
		wanted := slices.ContainsFunc(v.Decisions, func(d inject.Decision) bool {
			// The remaining pod does not match it, or it cannot be injected and another one is.
			return d.Template == template.Name && d.Code != inject.CodeConditionFalse && d.Code != inject.CodeFellBack
		})
		if wanted && !v.Denied {
			t.Errorf("%s of %s is let through: %v\n%s", what, template.Name, v.Judged, text)
		}
	}
	deny("the absence", func(map[string]any) bool { return false })
	if template.Protects("image") && !slices.Contains(template.Computed, "image") {
		deny("another image", func(c map[string]any) bool { c["image"] = "evil"; return true })
	}
	if template.Protects("command") {
		deny("a command", func(c map[string]any) bool { c["command"] = []string{"sleep"}; return true })
	}
	return damaged
}
