// SPDX-License-Identifier: Apache-2.0

//go:build js && wasm

// Wasm is the program that the page of the playground runs in a worker. It defines the JavaScript function
// pillion, from JSON to JSON, see the package playground.
package main

import (
	"syscall/js"

	"github.com/pillion-dev/pillion/cmd/pillion/playground"
)

func main() {
	e, err := playground.New()
	if err != nil {
		panic(err)
	}
	js.Global().Set("pillion", js.FuncOf(func(_ js.Value, args []js.Value) any {
		return string(e.JSON([]byte(args[0].String())))
	}))
	select {}
}
