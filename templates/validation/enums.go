// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"reflect"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates/params"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// EnumValues returns the strings that a type allows, or nil if it allows any.
func EnumValues(t reflect.Type) []string { return enumerations()[t] }

// enumerations are the strings that types of the template format and of the Kubernetes API allow.
var enumerations = sync.OnceValue(func() map[reflect.Type][]string {
	return map[reflect.Type][]string{
		reflect.TypeFor[v1alpha1.End]():              convertToStrings(v1alpha1.First, v1alpha1.Last),
		reflect.TypeFor[v1alpha1.OS]():               convertToStrings(v1alpha1.Linux, v1alpha1.Windows, v1alpha1.AnyOS),
		reflect.TypeFor[v1alpha1.TokenMode]():        convertToStrings(v1alpha1.Inherit, v1alpha1.None),
		reflect.TypeFor[v1alpha1.RolloutStrategy]():  convertToStrings(v1alpha1.OnCreate, v1alpha1.InPlace, v1alpha1.InPlaceOrRestart),
		reflect.TypeFor[v1alpha1.RolloutScope]():     convertToStrings(v1alpha1.ScopeNamespace, v1alpha1.ScopeAll),
		reflect.TypeFor[v1alpha1.RolloutOnFailure](): convertToStrings(v1alpha1.StopOnFailure, v1alpha1.UndoOnFailure),
		reflect.TypeFor[v1alpha1.ValidateMode]():     convertToStrings(v1alpha1.Deny, v1alpha1.Warn),
		reflect.TypeFor[v1alpha1.Overrider]():        convertToStrings(v1alpha1.ByPod, v1alpha1.ByServiceAccount, v1alpha1.ByNamespace),
		reflect.TypeFor[v1alpha1.ParamType]():        params.Types(),
		reflect.TypeFor[corev1.OSName]():             convertToStrings(corev1.Linux, corev1.Windows),

		reflect.TypeFor[corev1.PullPolicy]():                  convertToStrings(corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever),
		reflect.TypeFor[corev1.Protocol]():                    convertToStrings(corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP),
		reflect.TypeFor[corev1.TerminationMessagePolicy]():    convertToStrings(corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError),
		reflect.TypeFor[corev1.URIScheme]():                   convertToStrings(corev1.URISchemeHTTP, corev1.URISchemeHTTPS),
		reflect.TypeFor[corev1.HTTPProtocol]():                convertToStrings(corev1.HTTPProtocolHTTP1, corev1.HTTPProtocolHTTP2),
		reflect.TypeFor[corev1.GRPCProbeMode]():               convertToStrings(corev1.GRPCProbeModePlaintext, corev1.GRPCProbeModeTLS),
		reflect.TypeFor[corev1.ResourceResizeRestartPolicy](): convertToStrings(corev1.NotRequired, corev1.RestartContainer),
		reflect.TypeFor[corev1.HostPathType](): convertToStrings(corev1.HostPathUnset, corev1.HostPathDirectoryOrCreate, corev1.HostPathDirectory,
			corev1.HostPathFileOrCreate, corev1.HostPathFile, corev1.HostPathSocket, corev1.HostPathCharDev, corev1.HostPathBlockDev),
		reflect.TypeFor[corev1.MountPropagationMode](): convertToStrings(corev1.MountPropagationNone, corev1.MountPropagationHostToContainer,
			corev1.MountPropagationBidirectional),
		reflect.TypeFor[corev1.RecursiveReadOnlyMode]():      convertToStrings(corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyIfPossible, corev1.RecursiveReadOnlyEnabled),
		reflect.TypeFor[corev1.ProcMountType]():              convertToStrings(corev1.DefaultProcMount, corev1.UnmaskedProcMount),
		reflect.TypeFor[corev1.SeccompProfileType]():         convertToStrings(corev1.SeccompProfileTypeUnconfined, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeLocalhost),
		reflect.TypeFor[corev1.AppArmorProfileType]():        convertToStrings(corev1.AppArmorProfileTypeUnconfined, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeLocalhost),
		reflect.TypeFor[corev1.TolerationOperator]():         convertToStrings("", corev1.TolerationOpEqual, corev1.TolerationOpExists),
		reflect.TypeFor[corev1.TaintEffect]():                convertToStrings("", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute),
		reflect.TypeFor[corev1.PersistentVolumeAccessMode](): convertToStrings(corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOncePod),
		reflect.TypeFor[corev1.PersistentVolumeMode]():       convertToStrings(corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem),
		reflect.TypeFor[corev1.AzureDataDiskCachingMode]():   convertToStrings(corev1.AzureDataDiskCachingNone, corev1.AzureDataDiskCachingReadOnly, corev1.AzureDataDiskCachingReadWrite),
		reflect.TypeFor[corev1.AzureDataDiskKind]():          convertToStrings(corev1.AzureSharedBlobDisk, corev1.AzureDedicatedBlobDisk, corev1.AzureManagedDisk),
		reflect.TypeFor[corev1.Signal]():                     stopSignals(),
	}
})

// stopSignals returns the signals that may stop a container.
func stopSignals() []string {
	all := strings.Fields("ABRT ALRM BUS CHLD CLD CONT FPE HUP ILL INT IO IOT KILL PIPE POLL PROF PWR QUIT SEGV STKFLT STOP SYS TERM " +
		"TRAP TSTP TTIN TTOU URG USR1 USR2 VTALRM WINCH XCPU XFSZ RTMIN RTMAX")
	for i := range 15 {
		all = append(all, fmt.Sprintf("RTMIN+%d", i+1))
		if i < 14 {
			all = append(all, fmt.Sprintf("RTMAX-%d", i+1))
		}
	}
	for i := range all {
		all[i] = "SIG" + all[i]
	}
	return all
}

func convertToStrings[T ~string](all ...T) []string {
	out := make([]string, len(all))
	for i := range all {
		out[i] = string(all[i])
	}
	return out
}
