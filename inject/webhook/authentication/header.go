// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"encoding/base64"
	"strings"
)

// The schemes in lower case; they are compared without regard to case (RFC 9110, section 11.1).
const (
	schemeBearer = "bearer"
	schemeBasic  = "basic"
)

// maxAuthorization limits the header's length. A ServiceAccount token has about 1 KiB.
const maxAuthorization = 16 << 10

// parseAuthorization returns the scheme in lower case and the credential: a token or
// user:password. It rejects two headers, because a proxy may have checked the other
// one. BasicAuth of net/http accepts two, and reads no tokens.
func parseAuthorization(headers []string) (scheme, value string, ok bool) {
	if len(headers) != 1 || len(headers[0]) > maxAuthorization {
		return "", "", false
	}
	scheme, value, ok = strings.Cut(headers[0], " ")
	scheme, value = strings.ToLower(scheme), strings.Trim(value, " ")
	switch {
	case !ok || value == "":
		return "", "", false
	case scheme == schemeBearer:
		return scheme, value, isToken(value)
	case scheme == schemeBasic:
		text, err := base64.StdEncoding.Strict().DecodeString(value)
		return scheme, string(text), err == nil && isToken(value) && isPair(string(text))
	}
	return scheme, "", true
}

// isToken reports whether the string is one word of a header. It accepts more than
// token68 of RFC 6750, because API servers send tokens unchanged.
func isToken(text string) bool {
	return text != "" && strings.IndexFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// isPair reports whether the string is user:password (RFC 7617), with a user and without control characters.
func isPair(text string) bool {
	return strings.Index(text, ":") > 0 && strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) < 0
}
