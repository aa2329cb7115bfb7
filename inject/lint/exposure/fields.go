// SPDX-License-Identifier: Apache-2.0

package exposure

import (
	"encoding/json"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// riskyValues returns values of a field that a Pod Security check rejects, the worst first, as written in an annotation. They have at
// least one value for each way in which a check can reject the field. It returns false for fields that no check reads. The field is
// named by its struct, for example SecurityContext.privileged.
//
// The checks are those of k8s.io/pod-security-admission/policy. TestFields compares the list with them.
func riskyValues(field string) ([]string, bool) {
	switch field {
	case "SecurityContext.privileged", "SecurityContext.allowPrivilegeEscalation", "WindowsSecurityContextOptions.hostProcess":
		return []string{"true"}, true
	case "SecurityContext.runAsNonRoot":
		return []string{"false"}, true
	case "SecurityContext.runAsUser":
		return []string{"0"}, true
	case "SecurityContext.procMount":
		return []string{string(corev1.UnmaskedProcMount)}, true
	case "Capabilities.add":
		return linuxCapabilities(), true
	case "Capabilities.drop":
		return []string{"CHOWN"}, true // without ALL
	case "SeccompProfile.type", "AppArmorProfile.type":
		return []string{"Unconfined"}, true
	case "SELinuxOptions.type":
		return []string{"spc_t"}, true
	case "SELinuxOptions.user":
		return []string{"root"}, true
	case "SELinuxOptions.role":
		return []string{"sysadm_r"}, true
	case "ContainerPort.hostPort":
		return []string{"80", "443", "8080", "65535", "1"}, true
	case "HTTPGetAction.host", "TCPSocketAction.host":
		return []string{"192.0.2.1", "example.com"}, true
	}
	return nil, false
}

// hasFewValues reports whether the API server knows all values of a field, so that those of riskyValues are all that a check can
// reject.
func hasFewValues(field string) bool {
	switch field {
	case "SecurityContext.procMount", "SeccompProfile.type", "AppArmorProfile.type":
		return true
	}
	return false
}

// linuxCapabilities returns the names of Linux' capabilities, as in capabilities(7), the most powerful first.
func linuxCapabilities() []string {
	return strings.Fields(`SYS_ADMIN ALL NET_ADMIN SYS_PTRACE SYS_MODULE NET_RAW SYS_RAWIO SYS_BOOT SYS_TIME BPF PERFMON DAC_READ_SEARCH
		AUDIT_CONTROL AUDIT_READ BLOCK_SUSPEND CHECKPOINT_RESTORE IPC_LOCK IPC_OWNER LEASE LINUX_IMMUTABLE MAC_ADMIN MAC_OVERRIDE
		NET_BROADCAST SYSLOG SYS_NICE SYS_PACCT SYS_RESOURCE SYS_TTY_CONFIG WAKE_ALARM
		CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD SETFCAP SETGID SETPCAP SETUID SYS_CHROOT AUDIT_WRITE NET_BIND_SERVICE`)
}

// isChecked reports whether a Pod Security check reads a value in a place of a type, or whether it exists. The field is that of the
// place.
func isChecked(t reflect.Type, field string) bool {
	t = elementType(t)
	if _, ok := riskyValues(field); ok {
		return true
	}
	switch t {
	case reflect.TypeFor[corev1.Volume]():
		return true // which source it has
	case reflect.TypeFor[corev1.PodSecurityContext]():
		return false // a template sets only fields that no check reads
	}
	if isSource(field) || t.Kind() != reflect.Struct || values.IsScalar(t) {
		return isSource(field)
	}
	for _, f := range jsontree.StructFields(t) {
		if f.Type != t && isChecked(f.Type, f.Parent.Name()+"."+f.JSON) {
			return true
		}
	}
	return false
}

// isSource reports whether a field is the source of a volume.
func isSource(field string) bool { return strings.HasPrefix(field, "VolumeSource.") }

// elementType returns the type of a pointer's target, or of a list's items.
func elementType(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t
}

// worstObject returns an object of a type in which every checked field has its worst value.
func worstObject(t reflect.Type) map[string]any {
	all := map[string]any{}
	for _, f := range jsontree.StructFields(t) {
		if field := f.Parent.Name() + "." + f.JSON; isChecked(f.Type, field) {
			all[f.JSON] = worstValue(f.Type, field)
		}
	}
	return all
}

// worstValue returns a value of a type that the checks of its field reject.
func worstValue(t reflect.Type, field string) any {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Slice {
		return []any{worstValue(t.Elem(), field)}
	}
	if t.Kind() == reflect.Struct {
		return worstObject(t)
	}
	values, _ := riskyValues(field)
	return scalarOf(t, values[0])
}

// scalarOf returns a string, as written in an annotation, as a JSON value of a type.
func scalarOf(t reflect.Type, text string) any {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Bool:
		return text == "true"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return json.Number(text)
	}
	return text
}
