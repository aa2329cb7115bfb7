// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"os"
	"slices"
	"strings"
)

// ClearEnvironment removes what the product reads from this process's environment, and so from that of its children.
func ClearEnvironment() {
	clean := CleanEnvironment(os.Environ())
	os.Clearenv()
	for _, pair := range clean {
		name, value, _ := strings.Cut(pair, "=")
		os.Setenv(name, value)
	}
}

// CleanEnvironment returns the variables that the product and its libraries do not read. It adds an empty kubeconfig,
// because without one the product connects to the cluster of ~/.kube/config, and the width of the terminal in which users
// are thought to see what golden files and pages show.
//
// Proxies and certificates (HTTPS_PROXY, SSL_CERT_FILE) remain, because the go command that tests run needs them to
// download modules. The product has no use for them in tests, which only call this machine.
func CleanEnvironment(environ []string) []string {
	clean := slices.DeleteFunc(slices.Clone(environ), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return slices.Contains(readByProduct, name) ||
			slices.ContainsFunc(readByProductPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	})
	return append(clean, "KUBECONFIG="+os.DevNull, "COLUMNS=100")
}

// readByProductPrefixes begin the names of variables that the product or its libraries read.
var readByProductPrefixes = []string{"PILLION_", "OTEL_", "KUBE_", "GRPC_", "COBRA_"}

// readByProduct are variables that the product or its libraries read.
var readByProduct = []string{
	"COLUMNS", "NO_COLOR", "TERM", // its output
	"KUBECONFIG", "KUBERNETES_EXEC_INFO", "KUBERNETES_MASTER", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "POD_NAMESPACE",
	"DISABLE_HTTP2", "HTTP2_PING_TIMEOUT_SECONDS", "HTTP2_READ_IDLE_TIMEOUT_SECONDS", // its client
	"GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT", "GOTRACEBACK", "TZ", // Go's runtime
	"BASH_COMP_DEBUG_FILE", "FSNOTIFY_DEBUG", "GOPROTODEBUG", // its libraries
}
