// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
)

func shapesOfVolumes() map[string]Shape {
	var sources []string
	for _, f := range jsontree.StructFields(reflect.TypeFor[corev1.Volume]()) {
		if f.JSON != "name" {
			sources = append(sources, f.JSON)
		}
	}
	return map[string]Shape{
		"Volume":                       {Most: sources},
		"FlockerVolumeSource":          {One: []string{"datasetName", "datasetUUID"}},
		"FCVolumeSource":               {One: []string{"targetWWNs", "wwids"}},
		"DownwardAPIVolumeFile":        {One: []string{"fieldRef", "resourceFieldRef"}},
		"VolumeProjection":             {One: []string{"secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle", "podCertificate"}},
		"ClusterTrustBundleProjection": {One: []string{"name", "signerName"}},
		"PodCertificateProjection":     {Some: []string{"credentialBundlePath", "keyPath", "certificateChainPath"}},
	}
}

func valuesOfVolumes() map[string][]ValueRule {
	m := map[string][]ValueRule{
		"Volume.name":                                         {isName, isNotTokenVolume},
		"EmptyDirVolumeSource.mode":                           {inRange(0, 0o1777)},
		"HostPathVolumeSource.path":                           {hasNoBackstep},
		"GitRepoVolumeSource.directory":                       {isRelative, hasNoBackstep},
		"NFSVolumeSource.path":                                {isAbsolute},
		"ISCSIVolumeSource.lun":                               {inRange(0, 255)},
		"FCVolumeSource.lun":                                  {inRange(0, 255)},
		"ISCSIVolumeSource.iqn":                               {isInitiator},
		"ISCSIVolumeSource.initiatorName":                     {isInitiator},
		"GCEPersistentDiskVolumeSource.partition":             {inRange(0, 255)},
		"AWSElasticBlockStoreVolumeSource.partition":          {inRange(0, 255)},
		"FlockerVolumeSource.datasetName":                     {hasNoSlash},
		"QuobyteVolumeSource.registry":                        {isRegistry},
		"QuobyteVolumeSource.tenant":                          {isAtMost(64)},
		"CSIVolumeSource.driver":                              {isAtMost(63), passesCheck("", func(s string) []string { return validation.IsDNS1123Subdomain(strings.ToLower(s)) }, "%q")},
		"StorageOSVolumeSource.volumeName":                    {passesCheck("", validation.IsDNS1123Label, "%q")},
		"StorageOSVolumeSource.volumeNamespace":               {orEmpty(passesCheck("", validation.IsDNS1123Label, "%q"))},
		"KeyToPath.path":                                      {isRelative, hasNoBackstep, isNotReserved},
		"DownwardAPIVolumeFile.path":                          {isRelative, hasNoBackstep, isNotReserved},
		"ServiceAccountTokenProjection.path":                  {isRelative, hasNoBackstep, isNotReserved},
		"ClusterTrustBundleProjection.path":                   {isRelative, hasNoBackstep, isNotReserved},
		"ClusterTrustBundleProjection.name":                   {isNotEmpty},
		"ClusterTrustBundleProjection.signerName":             {isSigner},
		"PodCertificateProjection.signerName":                 {isSigner},
		"PodCertificateProjection.keyType":                    {isOneOf([]string{"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"})},
		"PodCertificateProjection.maxExpirationSeconds":       {inRange(3600, 91*24*3600)},
		"PodCertificateProjection.credentialBundlePath":       {isRelative, hasNoBackstep, isNotReserved},
		"PodCertificateProjection.keyPath":                    {isRelative, hasNoBackstep, isNotReserved},
		"PodCertificateProjection.certificateChainPath":       {isRelative, hasNoBackstep, isNotReserved},
		"ServiceAccountTokenProjection.expirationSeconds":     {inRange(600, 1<<32)},
		"PersistentVolumeClaimSpec.storageClassName":          {orEmpty(isSubdomain)},
		"PersistentVolumeClaimSpec.volumeAttributesClassName": {orEmpty(isSubdomain)},
		"TypedLocalObjectReference.apiGroup":                  {orEmpty(isSubdomain)},
		"TypedObjectReference.apiGroup":                       {orEmpty(isSubdomain)},
		"TypedObjectReference.namespace":                      {orEmpty(isName)},
	}
	for _, t := range []string{"SecretVolumeSource", "ConfigMapVolumeSource", "DownwardAPIVolumeSource", "ProjectedVolumeSource"} {
		m[t+".defaultMode"] = []ValueRule{inRange(0, 0o777)}
		m[t+".defaultUser"] = []ValueRule{inRange(0, 1<<31-1)}
	}
	for _, t := range []string{"KeyToPath", "DownwardAPIVolumeFile"} {
		m[t+".mode"] = []ValueRule{inRange(0, 0o777)}
	}
	for _, t := range []string{"KeyToPath", "DownwardAPIVolumeFile", "ServiceAccountTokenProjection", "ClusterTrustBundleProjection", "PodCertificateProjection"} {
		m[t+".user"] = []ValueRule{inRange(0, 1<<31-1)}
	}
	return m
}

func volumeRules() map[string][]ObjectRule {
	return map[string][]ObjectRule{
		"AzureDiskVolumeSource": {
			needsField("kind", isAnyText("Managed"), "diskURI", hasPrefix("/subscriptions/"), "the diskURI of a managed disk must begin with /subscriptions/"),
			needsField("kind", isAnyText("Shared", "Dedicated", ""), "diskURI", hasPrefix("https://"), "the diskURI must begin with https://, unless the kind is Managed"),
		},
		"ISCSIVolumeSource": {
			needsField("chapAuthDiscovery", isTrue, "secretRef", isPresent, "chapAuthDiscovery needs secretRef"),
			needsField("chapAuthSession", isTrue, "secretRef", isPresent, "chapAuthSession needs secretRef"),
		},
		"CSIVolumeSource.nodePublishSecretRef":   {hasName()},
		"StorageOSVolumeSource.secretRef":        {hasName()},
		"CinderVolumeSource.secretRef":           {hasName()},
		"FCVolumeSource":                         {needsField("targetWWNs", isPresent, "lun", isPresent, "targetWWNs needs lun")},
		"DownwardAPIVolumeFile.fieldRef":         {{reads: []string{"fieldPath"}, check: fieldPath("metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations")}},
		"DownwardAPIVolumeFile.resourceFieldRef": {{reads: []string{"resource", "divisor"}, check: resourceField}},
		"ClusterTrustBundleProjection":           {needsField("labelSelector", isPresent, "name", not(isPresent), "labelSelector needs signerName")},
		"ProjectedVolumeSource":                  {{reads: []string{"sources"}, check: pathsOnce}},
		"LabelSelector":                          {{reads: []string{"matchLabels"}, check: labelsMatched}},
		"PersistentVolumeClaimTemplate.metadata": {
			{reads: claimFieldsNotAllowed, check: func(n *jsontree.Node) error {
				for _, name := range claimFieldsNotAllowed {
					if n.Get(name) != nil {
						return fmt.Errorf("must not have %s: only labels and annotations are allowed here", name)
					}
				}
				return nil
			}},
			{reads: []string{"labels"}, check: func(n *jsontree.Node) error { return checkKeys(n.Get("labels"), validation.IsQualifiedName) }},
			{reads: []string{"annotations"}, check: func(n *jsontree.Node) error {
				return checkKeys(n.Get("annotations"), func(key string) []string { return validation.IsQualifiedName(strings.ToLower(key)) })
			}},
		},
		"LabelSelectorRequirement": {{reads: []string{"operator", "values"}, check: operatorTakes}},
		"FlexVolumeSource": {{reads: []string{"options"}, check: func(n *jsontree.Node) error {
			options := n.Get("options").Members()
			for i := range options {
				domain, _, _ := strings.Cut(strings.ToLower(options[i].Name()), "/")
				if strings.HasSuffix("."+domain, ".kubernetes.io") || strings.HasSuffix("."+domain, ".k8s.io") {
					return fmt.Errorf("the option %s: keys of kubernetes.io and k8s.io are reserved", options[i].Name())
				}
			}
			return nil
		}}},
		"PersistentVolumeClaimSpec": {
			{reads: []string{"resources"}, check: func(n *jsontree.Node) error {
				if q, err := quantityOf(n.At("resources", "requests", "storage")); err != nil || q.Sign() <= 0 {
					return fmt.Errorf("resources.requests.storage must be set, and greater than 0")
				}
				return nil
			}},
			{reads: []string{"accessModes"}, fewer: true, applies: hasTwo("accessModes"), check: onePodAlone},
			{reads: []string{"dataSource", "dataSourceRef"}, applies: mayHaveField("dataSource"), check: sameDataSource},
		},
		"TypedLocalObjectReference": {{reads: []string{"apiGroup", "kind"}, check: isClaimOrOfGroup}},
		"TypedObjectReference":      {{reads: []string{"apiGroup", "kind"}, check: isClaimOrOfGroup}},
	}
}

// onePodAlone checks that ReadWriteOncePod is the only access mode, if it is one.
func onePodAlone(n *jsontree.Node) error {
	modes := n.Get("accessModes").Items()
	isOnePod := func(mode jsontree.Node) bool { return mode.IsText(string(corev1.ReadWriteOncePod)) }
	if slices.ContainsFunc(modes, isOnePod) && slices.ContainsFunc(modes, func(mode jsontree.Node) bool { return !isOnePod(mode) }) {
		return fmt.Errorf("accessModes: %s excludes other modes", corev1.ReadWriteOncePod)
	}
	return nil
}

// sameDataSource checks that a claim has one data source, or twice the same.
func sameDataSource(n *jsontree.Node) error {
	one, other := n.Get("dataSource"), n.Get("dataSourceRef")
	if one == nil || other == nil {
		return nil
	}
	if other.Get("namespace").Text() != "" {
		return fmt.Errorf("dataSource is not allowed if dataSourceRef has a namespace")
	}
	for _, name := range []string{"apiGroup", "kind", "name"} {
		if one.Get(name).String() != other.Get(name).String() {
			return fmt.Errorf("dataSource and dataSourceRef must have the same %s", name)
		}
	}
	return nil
}

// isClaimOrOfGroup checks the data source of a claim.
func isClaimOrOfGroup(n *jsontree.Node) error {
	if kind := n.Get("kind"); n.Get("apiGroup").Text() == "" && !kind.IsText("PersistentVolumeClaim") {
		return fmt.Errorf("%s needs its apiGroup: without one, only PersistentVolumeClaim is a data source", kind.Text())
	}
	return nil
}

// labelsMatched checks the labels that a selector names.
func labelsMatched(n *jsontree.Node) error {
	if err := checkKeys(n.Get("matchLabels"), validation.IsQualifiedName); err != nil {
		return err
	}
	labels := n.Get("matchLabels").Members()
	for i := range labels {
		if err := isLabelValue.check(&labels[i]); err != nil {
			return err
		}
	}
	return nil
}

// checkKeys checks the keys of labels or annotations. The function errs returns what is wrong with a key.
func checkKeys(n *jsontree.Node, errs func(key string) []string) error {
	members := n.Members()
	for i := range members {
		if errs := errs(members[i].Name()); len(errs) > 0 {
			return fmt.Errorf("%q is not a valid key: %s", members[i].Name(), problem.TrimPattern(errs[0]))
		}
	}
	return nil
}

// operatorTakes checks the operator of a requirement, and whether it has values if the operator needs them.
func operatorTakes(n *jsontree.Node) error {
	operator, values := n.Get("operator").Text(), len(n.Get("values").Items())
	switch metav1.LabelSelectorOperator(operator) {
	case metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn:
		if values == 0 {
			return fmt.Errorf("the operator %s needs values", operator)
		}
	case metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist:
		if values > 0 {
			return fmt.Errorf("the operator %s takes no values", operator)
		}
	default:
		return fmt.Errorf("%q is not an operator; it must be In, NotIn, Exists or DoesNotExist", operator)
	}
	return nil
}

// pathsOnce rejects two files of a projected volume with the same path.
func pathsOnce(n *jsontree.Node) error {
	seen := map[string]bool{}
	take := func(path *jsontree.Node) error {
		text := path.Text()
		if text != "" && seen[text] {
			return fmt.Errorf("two sources have the path %s", text)
		}
		seen[text] = true
		return nil
	}
	sources := n.Get("sources").Items()
	for i := range sources {
		kinds := sources[i].Members()
		for j := range kinds {
			files := slices.Concat([]jsontree.Node{kinds[j]}, kinds[j].Get("items").Items())
			for k := range files {
				for _, name := range []string{"path", "credentialBundlePath", "keyPath", "certificateChainPath"} {
					if err := take(files[k].Get(name)); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

func hasPrefix(prefix string) func(*jsontree.Node) bool {
	return func(n *jsontree.Node) bool { return strings.HasPrefix(n.Text(), prefix) }
}

var isInitiator = textRule("",
	regexp.MustCompile(`^(eui\.[[:alnum:]]{16}|naa\.[[:alnum:]]{32}|iqn\.\d{4}-\d{2}\.[[:alnum:]-.]+:[^,;*&$|\s]+)$`).MatchString,
	"%q must begin with one of iqn., eui., naa. and be a name of that form")

var isRegistry = textRule("", func(s string) bool {
	return !slices.ContainsFunc(strings.Split(s, ","), func(pair string) bool {
		i := strings.LastIndexByte(pair, ':')
		return i < 0 || strings.Contains(pair[:i], ":") && !strings.HasPrefix(pair, "[")
	})
}, "%q must be HOST:PORT, or several with commas between them")

var isSigner = textRule("", func(s string) bool {
	domain, name, _ := strings.Cut(s, "/")
	return strings.Contains(domain, ".") && len(validation.IsDNS1123Subdomain(domain))+len(validation.IsDNS1123Subdomain(name)) == 0
}, "%q is not the name of a signer: DOMAIN/NAME")

var isAbsolute = textRule("", path.IsAbs, "%q must be an absolute path")

var isNotReserved = textRule("", func(s string) bool { return !strings.HasPrefix(s, "..") }, "%q must not begin with two dots")

var hasNoSlash = textRule("", func(s string) bool { return !strings.Contains(s, "/") }, "%q must not contain a slash")

// claimFieldsNotAllowed are the fields of metadata that the template of a claim must not have (ValidatePersistentVolumeClaimTemplate in
// pkg/apis/core/validation of Kubernetes).
var claimFieldsNotAllowed = []string{
	"name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation", "deletionTimestamp", "deletionGracePeriodSeconds",
	"ownerReferences", "finalizers", "managedFields",
}
