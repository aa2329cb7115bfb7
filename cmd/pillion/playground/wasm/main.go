// SPDX-License-Identifier: Apache-2.0

//go:build js && wasm

// Wasm is the program that the page of the playground runs in a worker. It defines the JavaScript function
// pillion, from JSON to JSON, see the package playground.
package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"syscall/js"

	"github.com/pillion-dev/pillion/cmd/pillion/playground"
)

func main() {
	e, err := playground.New()
	if err != nil {
		panic(err)
	}
	// A page starts with the memory that this program has when it waits, see page/snapshot.mjs. So what only the first
	// evaluation does is done now: its input is the argument.
	for _, input := range os.Args[1:] {
		e.JSON([]byte(input))
	}
	runtime.GC()
	debug.SetGCPercent(400) // collecting has no thread of its own here
	js.Global().Set("pillion", js.FuncOf(func(_ js.Value, args []js.Value) any {
		return string(e.JSON([]byte(args[0].String())))
	}))
	select {}
}
