// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"
	"reflect"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// choices returns the strings that a type allows, or nil if it allows any.
func choices(t reflect.Type) []string { return enumerations()[t] }

// enumerations are the strings that types of the template format and of the Kubernetes API allow.
var enumerations = sync.OnceValue(func() map[reflect.Type][]string {
	return map[reflect.Type][]string{
		reflect.TypeFor[v1alpha1.End]():              texts(v1alpha1.First, v1alpha1.Last),
		reflect.TypeFor[v1alpha1.TokenMode]():        texts(v1alpha1.Inherit, v1alpha1.None),
		reflect.TypeFor[v1alpha1.RolloutStrategy]():  texts(v1alpha1.OnCreate, v1alpha1.InPlace, v1alpha1.InPlaceOrRestart),
		reflect.TypeFor[v1alpha1.RolloutScope]():     texts(v1alpha1.ScopeNamespace, v1alpha1.ScopeAll),
		reflect.TypeFor[v1alpha1.RolloutOnFailure](): texts(v1alpha1.StopOnFailure, v1alpha1.UndoOnFailure),
		reflect.TypeFor[v1alpha1.ValidateMode]():     texts(v1alpha1.Deny, v1alpha1.Warn),
		reflect.TypeFor[v1alpha1.Overrider]():        texts(v1alpha1.ByPod, v1alpha1.ByServiceAccount, v1alpha1.ByNamespace),
		reflect.TypeFor[v1alpha1.ParamType]():        ParamTypes(),
		reflect.TypeFor[corev1.OSName]():             texts(corev1.Linux, corev1.Windows),

		reflect.TypeFor[corev1.PullPolicy]():                  texts(corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever),
		reflect.TypeFor[corev1.Protocol]():                    texts(corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP),
		reflect.TypeFor[corev1.TerminationMessagePolicy]():    texts(corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError),
		reflect.TypeFor[corev1.URIScheme]():                   texts(corev1.URISchemeHTTP, corev1.URISchemeHTTPS),
		reflect.TypeFor[corev1.HTTPProtocol]():                texts(corev1.HTTPProtocolHTTP1, corev1.HTTPProtocolHTTP2),
		reflect.TypeFor[corev1.GRPCProbeMode]():               texts(corev1.GRPCProbeModePlaintext, corev1.GRPCProbeModeTLS),
		reflect.TypeFor[corev1.ResourceResizeRestartPolicy](): texts(corev1.NotRequired, corev1.RestartContainer),
		reflect.TypeFor[corev1.HostPathType](): texts(corev1.HostPathUnset, corev1.HostPathDirectoryOrCreate, corev1.HostPathDirectory,
			corev1.HostPathFileOrCreate, corev1.HostPathFile, corev1.HostPathSocket, corev1.HostPathCharDev, corev1.HostPathBlockDev),
		reflect.TypeFor[corev1.MountPropagationMode](): texts(corev1.MountPropagationNone, corev1.MountPropagationHostToContainer,
			corev1.MountPropagationBidirectional),
		reflect.TypeFor[corev1.RecursiveReadOnlyMode]():      texts(corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyIfPossible, corev1.RecursiveReadOnlyEnabled),
		reflect.TypeFor[corev1.ProcMountType]():              texts(corev1.DefaultProcMount, corev1.UnmaskedProcMount),
		reflect.TypeFor[corev1.SeccompProfileType]():         texts(corev1.SeccompProfileTypeUnconfined, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeLocalhost),
		reflect.TypeFor[corev1.AppArmorProfileType]():        texts(corev1.AppArmorProfileTypeUnconfined, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeLocalhost),
		reflect.TypeFor[corev1.TolerationOperator]():         texts("", corev1.TolerationOpEqual, corev1.TolerationOpExists),
		reflect.TypeFor[corev1.TaintEffect]():                texts("", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute),
		reflect.TypeFor[corev1.PersistentVolumeAccessMode](): texts(corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOncePod),
		reflect.TypeFor[corev1.PersistentVolumeMode]():       texts(corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem),
		reflect.TypeFor[corev1.AzureDataDiskCachingMode]():   texts(corev1.AzureDataDiskCachingNone, corev1.AzureDataDiskCachingReadOnly, corev1.AzureDataDiskCachingReadWrite),
		reflect.TypeFor[corev1.AzureDataDiskKind]():          texts(corev1.AzureSharedBlobDisk, corev1.AzureDedicatedBlobDisk, corev1.AzureManagedDisk),
		reflect.TypeFor[corev1.Signal]():                     signals(),
	}
})

// signals returns the signals that may stop a container.
func signals() []string {
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
