// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"
)

// maxBody bounds a request's body, in bytes. The API server accepts objects of up to 3 MiB. A
// review of an update has two of them (6 MiB), the managedFields that the API
// server adds, and the envelope.
const maxBody = 8 << 20

// maxTimeout is the longest timeout that a webhook configuration may ask for.
const maxTimeout = 30 * time.Second

const contentJSON = "application/json"

// checkHead checks the request's method, headers and length, and sets the deadline.
//
// The API server stops waiting after the time in the query (?timeout=), counted from the exchange's start. A body that
// was not read by then is answered with 503. After its body was read, a request may wait for its turn (see
// [Limiter]); processing takes microseconds.
func (e *exchange) checkHead(w http.ResponseWriter, r *http.Request) *rejection {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return newRejection(http.StatusMethodNotAllowed, "the method must be POST, not %s", r.Method)
	}
	if text := r.Header.Get("Content-Type"); text != contentJSON { // as the API server writes it
		if kind, _, err := mime.ParseMediaType(text); err != nil || kind != contentJSON {
			return newRejection(http.StatusUnsupportedMediaType, "the content type must be application/json, not %q", text)
		}
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && coding != "identity" { // no API server sends one
		return newRejection(http.StatusUnsupportedMediaType, "the body must not be compressed (%q)", coding)
	}
	if r.ContentLength > maxBody {
		return tooLarge()
	}
	timeout, rejected := parseTimeout(r)
	e.share.deadline = e.start.Add(timeout)
	return rejected
}

func tooLarge() *rejection {
	return newRejection(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes", maxBody)
}

// readBody reads the body into e.buffers. The buffer doubles as bytes arrive. A caller can claim any Content-Length without sending
// as much, so it is only used to allocate less than the double.
func (h *Handler) readBody(e *exchange, w http.ResponseWriter, r *http.Request) *rejection {
	conn := http.NewResponseController(w)
	// If the ResponseWriter does not support it, the server's ReadTimeout applies.
	_ = conn.SetReadDeadline(e.share.deadline)
	from, promised := http.MaxBytesReader(w, r.Body, maxBody), int(r.ContentLength)+bytes.MinRead
	body := &e.buffers.body
	for {
		n, err := from.Read((*body)[len(*body):cap(*body)])
		*body = (*body)[:len(*body)+n]
		switch {
		case err == io.EOF && r.Context().Err() == nil:
			return nil
		case err != nil:
			return unreadRejection(err)
		case len(*body) < cap(*body):
			continue
		}
		room := min(2*cap(*body), maxBody+bytes.MinRead)
		if promised > cap(*body) {
			room = min(room, promised)
		}
		if !e.share.takeMemory(room) {
			return shedRejection(shedMemory)
		}
		if h.Limiter.isMemoryShort() {
			_ = conn.SetReadDeadline(earlierTime(e.share.deadline, time.Now().Add(hurry)))
		}
		*body = append(make([]byte, 0, room), *body...)
	}
}

func earlierTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// unreadRejection returns the rejection for a body that could not be read. An EOF here means that the caller closed the connection.
func unreadRejection(err error) *rejection {
	limit := (*http.MaxBytesError)(nil)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, os.ErrDeadlineExceeded):
		return tooLate()
	case errors.As(err, &limit):
		return tooLarge()
	}
	return newRejection(http.StatusBadRequest, "the body could not be read: %v", err)
}

// parseTimeout returns how long the caller waits, by the query of the URL.
func parseTimeout(r *http.Request) (time.Duration, *rejection) {
	text, alone := strings.CutPrefix(r.URL.RawQuery, "timeout=") // as the API server writes it
	if !alone || strings.ContainsAny(text, "&%+") {
		text = r.URL.Query().Get("timeout")
	}
	if text == "" {
		return maxTimeout, nil
	}
	timeout, err := time.ParseDuration(text)
	if err != nil || timeout <= 0 {
		return 0, newRejection(http.StatusBadRequest, "the timeout must be a duration such as 5s, not %q", text)
	}
	return min(timeout, maxTimeout), nil
}
