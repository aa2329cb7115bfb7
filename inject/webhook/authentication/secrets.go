// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"strings"
)

// secrets are hashes of the accepted credentials. All have the same length, so the time
// of a comparison reveals nothing about them.
type secrets [][sha256.Size]byte

func (s secrets) hasSecret(sent string) bool {
	sum, found := sha256.Sum256([]byte(sent)), 0
	for i := range s {
		found |= subtle.ConstantTimeCompare(sum[:], s[i][:])
	}
	return found == 1
}

// parseSecrets parses one secret per line, and ignores empty lines. A file without a secret is
// an error, because it is probably incomplete. Errors never quote a line.
func parseSecrets(content []byte, fits func(string) bool, shape string) (secrets, error) {
	var all secrets
	n := 0
	for line := range strings.Lines(string(content)) {
		n++
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			continue
		}
		if !fits(line) {
			return nil, fmt.Errorf("line %d is not %s", n, shape)
		}
		all = append(all, sha256.Sum256([]byte(line)))
	}
	if len(all) == 0 {
		return nil, errors.New("it is empty: it must have one line for each of " + shape)
	}
	return all, nil
}

// Tokens are the accepted bearer tokens.
type Tokens struct{ secrets }

// ParseTokens parses one token per line. All are valid at the same time. To replace a token,
// first add the new one here, then configure it in the API servers, then remove the old one.
func ParseTokens(content []byte) (*Tokens, error) {
	all, err := parseSecrets(content, isToken, "a token without spaces")
	return &Tokens{all}, err
}

// Passwords are the accepted users with their passwords.
type Passwords struct{ secrets }

// ParsePasswords parses one user:password per line. As with [ParseTokens], two passwords of
// one user may be valid at the same time.
func ParsePasswords(content []byte) (*Passwords, error) {
	all, err := parseSecrets(content, isPair, "user:password")
	return &Passwords{all}, err
}

// checkPassword compares user:password as one secret, so that callers cannot learn which half is wrong.
func (p *Passwords) checkPassword(sent string) *Rejection {
	if p.hasSecret(sent) {
		return nil
	}
	return &Rejection{Reason: WrongPassword, Sentence: "the user or the password is wrong"}
}
