// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject"
)

// unreadNote returns a note about annotations of other products that no parameter reads, although parameters read other annotations of
// the same products. This is no warning, because the product itself may read them. It returns "" if there are none.
func unreadNote(injector *inject.Injector, pod []byte) string {
	var read struct {
		Metadata struct{ Annotations map[string]any }
	}
	if json.Unmarshal(pod, &read) != nil {
		return ""
	}
	keys := slices.DeleteFunc(slices.Sorted(maps.Keys(read.Metadata.Annotations)), func(key string) bool { return !injector.IgnoresOfProducts(key) })
	switch len(keys) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("no parameter reads the annotation %s, but some read others of %s", keys[0], strings.Split(keys[0], "/")[0])
	}
	domains := map[string]bool{}
	for _, key := range keys {
		domains[strings.Split(key, "/")[0]] = true
	}
	return fmt.Sprintf("no parameter reads the annotations %s, but some read others of %s", joinNames(keys, 200), strings.Join(slices.Sorted(maps.Keys(domains)), " and "))
}

// unknownAccount returns a note about what to do if a template reads the pod's ServiceAccount, which is not known. Otherwise, it
// returns "".
func unknownAccount(result *inject.Result, req *inject.Request) string {
	if !slices.ContainsFunc(result.Decisions, func(d inject.Decision) bool { return d.Code == inject.CodeUnknownServiceAccount }) {
		return ""
	}
	if req.File {
		return "to see what a pod with this ServiceAccount gets, add it to the files, or use --service-account-annotation KEY=VALUE"
	}
	return "create the ServiceAccount; then the API server creates the pod when its controller tries again"
}
