// SPDX-License-Identifier: Apache-2.0

// Command constant is a webhook without any cost except HTTP and TLS. It reads each request
// and returns a constant answer for its path, with the uid of the request.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const allowed = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"","allowed":true}}`

func main() {
	log.SetFlags(0)
	listen := flag.String("listen", "127.0.0.1:8443", "the `ADDRESS`")
	cert := flag.String("cert", "", "the `FILE` of the certificate, PEM")
	key := flag.String("key", "", "the `FILE` of its key, PEM")
	mux := http.NewServeMux()
	mux.Handle("POST /", constant([]byte(allowed)))
	flag.Func("answer", "a `PATH=FILE`: the answer at that path (elsewhere: allowed, unchanged); may be given many times", func(text string) error {
		path, file, ok := strings.Cut(text, "=")
		if !ok {
			return fmt.Errorf("%q is not PATH=FILE", text)
		}
		answer, err := os.ReadFile(file)
		if err == nil {
			mux.Handle("POST "+path, constant(answer))
		}
		return err
	})
	flag.Parse()
	server := &http.Server{ // same limits as Pillion's
		Addr: *listen, Handler: mux,
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
	}
	log.Fatal(server.ListenAndServeTLS(*cert, *key))
}

// constant returns a handler that answers with the request's uid.
func constant(answer []byte) http.Handler {
	start, end := uid(answer)
	bodies := sync.Pool{New: func() any { return new(bytes.Buffer) }}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := bodies.Get().(*bytes.Buffer)
		defer bodies.Put(body)
		body.Reset()
		if _, err := body.ReadFrom(r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		from, to := uid(body.Bytes())
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(start+to-from+len(answer)-end))
		for _, part := range [][]byte{answer[:start], body.Bytes()[from:to], answer[end:]} {
			_, _ = w.Write(part)
		}
	})
}

// uid returns the position of the first uid, which is the one of the request or response.
func uid(review []byte) (start, end int) {
	const key = `"uid":"`
	start = bytes.Index(review, []byte(key))
	if start < 0 {
		return 0, 0
	}
	start += len(key)
	return start, start + bytes.IndexByte(review[start:], '"')
}
