// SPDX-License-Identifier: Apache-2.0

package certs

import "os"

// Files has the paths of two PEM files: a certificate with its chain, and its key.
type Files struct {
	Cert, Key string
	Serving   *Serving
}

// Load offers the pair that the files contain now. If they are incomplete, invalid or missing,
// the pair in use stays. Call it again when the files may have changed.
func (f Files) Load() error {
	cert, err := os.ReadFile(f.Cert)
	if err == nil {
		var key []byte
		if key, err = os.ReadFile(f.Key); err == nil {
			return f.Serving.OfferPEM(cert, key)
		}
	}
	f.Serving.Reject(ReasonUnreadable, err)
	return err
}

// Paths returns the paths of the files.
func (f Files) Paths() []string { return []string{f.Cert, f.Key} }
