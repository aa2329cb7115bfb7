// SPDX-License-Identifier: Apache-2.0

package certs

import "os"

// Files is a certificate with its chain and its key in two PEM files.
type Files struct {
	Cert, Key string
	Serving   *Serving
}

// Load offers the pair that the files hold now. A pair that is half written,
// broken or gone is rejected: what is served stays. The caller calls it again when
// the files may have changed.
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

// Paths are the files.
func (f Files) Paths() []string { return []string{f.Cert, f.Key} }
