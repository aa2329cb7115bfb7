// SPDX-License-Identifier: Apache-2.0

package templates_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/pillion-dev/pillion/templates"
)

var returned = flag.String("returned", "", "a `folder` with templates that an API server returned, as YAML or JSON, named like their files")

// appliedFiles are patterns for files that users apply.
var appliedFiles = []string{"library/*.yaml", "library/cloud/*.yaml", "from/*/*.yaml", "../e2e/testdata/templates/*.yaml", "../examples/templates/*.yaml"}

// valueOf returns a template with a parameter, an environment variable, an integer and a quantity.
func valueOf(param, env, order, cpu string) string {
	return fmt.Sprintf(`apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: a}
spec:
  params:
  - name: p
    default: %s
  order: %s
  pod:
    spec:
      containers:
      - name: c
        image: i
        env:
        - name: E
          value: %s
        resources:
          limits:
            cpu: %s
`, param, order, env, cpu)
}

// TestApplied checks that each value is read as the API server stores it after kubectl apply, or
// that there is a problem with this message.
func TestApplied(t *testing.T) {
	param := func(value string) string { return valueOf(value, "x", "1", "1") }
	env := func(value string) string { return valueOf("x", value, "1", "1") }
	order := func(value string) string { return valueOf("x", "x", value, "1") }
	cpu := func(value string) string { return valueOf("x", "x", "1", value) }
	labels := func(flow string) string {
		return strings.Replace(param("x"), "{name: a}", "{name: a, labels: "+flow+"}", 1)
	}
	for _, test := range []struct{ name, text, want string }{
		{"word", param("info"), ""},
		{"bool", param("true"), ""},
		{"number", param("10"), ""},
		{"fraction", param("0.5"), ""},
		{"quoted", param(`"on"`), ""},
		{"on", param("on"), `x.yaml:7: template a: spec.params[0].default: kubectl reads on as true; put it in quotes: "on"`},
		{"no", param("No"), `put it in quotes: "No"`},
		{"True", param("True"), `kubectl reads True as true; put it in quotes: "True"`},
		{"010", param("010"), `kubectl reads 010 as 8; put it in quotes: "010"`},
		{"0o10", param("0o10"), `kubectl reads 0o10 as 8; put it in quotes: "0o10"`},
		{"1_000", param("1_000"), `kubectl reads 1_000 as 1000; put it in quotes: "1_000"`},
		{"0x10", param("0x10"), `kubectl reads 0x10 as 16; put it in quotes: "0x10"`},
		{"1:30", param("1:30"), ""},
		{"date", param("2001-01-01"), ""},
		{".5", param(".5"), `kubectl reads .5 as 0.5; put it in quotes: ".5"`},
		{"1e3", param("1e3"), `kubectl reads 1e3 as 1000; put it in quotes: "1e3"`},
		{"1.0", param("1.0"), `kubectl reads 1.0 as 1; put it in quotes: "1.0"`},
		{"large", param("12345678901234567890123"), `kubectl reads 12345678901234567890123 as 1.2345678901234568e+22; put it in quotes`},
		{"uint64", param("18446744073709551615"), `kubectl reads 18446744073709551615 as 18446744073709552000; put it in quotes`},
		{"int64", param("9223372036854775807"), ""},
		{"infinite", param(".inf"), ".inf is not a JSON number"},
		{"tagged", param("!!str on"), ""},
		{"binary", param("!!binary aGk="), `kubectl reads aGk= as "hi"; write it without tags`},
		{"special characters", param(`"\0\x7f\x85\u2028\ufeff\U0001F600"`), ""},
		{"string", env("off"), `spec.pod.spec.containers[0].env[0].value: kubectl reads off as false; put it in quotes: "off"`},
		{"y", env("y"), `put it in quotes: "y"`},
		{"string like a date", env("2001-01-01"), ""},
		{"string in octal", env("0o10"), "must be a string"},
		{"integer", order("0x10"), ""},
		{"integer with _", order("1_000"), ""},
		{"octal integer", order("010"), ""},
		{"new octal integer", order("0o10"), ""},
		{"integer with +", order("+5"), ""},
		{"minus zero", order("-0"), `spec.order: kubectl reads -0 as 0; write 0`},
		{"quantity", cpu("0.5"), ""},
		{"quantity with zeros", cpu("1.0"), `kubectl reads 1.0 as 1; put it in quotes: "1.0"`},
		{"large quantity", cpu("18446744073709551615"), `put it in quotes: "18446744073709551615"`},
		{"anchor", labels("{a: &a x, b: *a}"), ""},
		{"merge", labels("{<<: {a: u, b: v}, a: w}"), ""},
		{"merge later", labels("{a: w, <<: {a: u, b: v}}"), `metadata.labels.a: kubectl reads w as "u"; write it without tags, and a merge key (<<) before the other keys`},
		{"key", labels("{on: x}"), `metadata.labels.on: kubectl reads another key; put it in quotes: "on"`},
		{"number as a key", labels("{1: x}"), ""},
		{"octal number as a key", labels("{010: x}"), `metadata.labels.010: kubectl reads another key; put it in quotes: "010"`},
		{"equal keys", labels("{1: u, 0x1: v}"), `metadata.labels.1: kubectl reads u as "v"`},
		{"null as a key", labels("{~: x}"), "kubectl cannot read this document: unsupported map key"},
		{"key twice", labels("{a: x, a: y}"), "metadata.labels.a: the key appears twice"},
		{"null", labels("{a: ~}"), "metadata.labels.a: has no value"},
		{"documents", "# first\n---\n---\n" + param("x") + "--- # second\n" + strings.Replace(param("x"), "name: a", "name: b", 1) + "---\n", ""},
		{"second of two", param("x") + "---\n" + strings.Replace(param("on"), "name: a", "name: b", 1), `x.yaml:27: template b: spec.params[0].default: kubectl reads on as true`},
		{"other line ends", strings.ReplaceAll(param("x")+"---\n"+strings.Replace(param("x"), "name: a", "name: b", 1), "\n", "\r"), "x.yaml:21: template b: kubectl does not find this document; begin it with a line that contains only ---"},
		{"value after ---", "--- " + `{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: a}, spec: {pod: {spec: {containers: [{name: c, image: i}]}}}}`, "kubectl does not find this document"},
		{"directive", "%TAG ! tag:example.com,2000:\n---\n" + param("x"), "kubectl cannot read this document"},
		{"byte order mark", "\ufeff---\n" + param("x"), ""},
		{"line ends of Windows", strings.ReplaceAll(param("x")+"---\n", "\n", "\r\n"), ""},
		{"aliases", labels(aliases()), "kubectl cannot read this document: document contains excessive aliasing"},
		{"JSON", string(asJSON(t, param("x"))[0]), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			found, problems := templates.Parse("x.yaml", []byte(test.text))
			if test.want != "" {
				if len(problems) == 0 || !strings.Contains(problems.Error(), test.want) {
					t.Fatalf("%v, want %s", problems, test.want)
				}
				return
			}
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			for i, object := range asJSON(t, test.text) {
				checkApplied(t, found[i], object)
			}
		})
	}
}

// aliases returns an object with few values of its own and many by aliases.
func aliases() string {
	var labels strings.Builder
	for i := range 200 {
		fmt.Fprintf(&labels, "a%d: x, ", i)
	}
	return "{<<: &a {" + labels.String() + "}" + strings.Repeat(", <<: *a", 200) + "}"
}

// asJSON returns the documents of a file as the API server stores them after kubectl apply.
func asJSON(t *testing.T, text string) (sent [][]byte) {
	t.Helper()
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(strings.TrimPrefix(text, "\ufeff")), 4096)
	for {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
			return sent
		} else if err != nil {
			t.Fatal(err)
		}
		if len(raw) == 0 {
			continue
		}
		var object any // with numbers as an API server stores them
		if err := utiljson.Unmarshal(raw, &object); err != nil {
			t.Fatal(err)
		}
		if object == nil {
			continue
		}
		stored, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		sent = append(sent, stored)
	}
}

// checkApplied checks that a template has the revision of the object.
func checkApplied(t *testing.T, tpl *templates.Template, object []byte) {
	t.Helper()
	again, problems := templates.ParseObject("object", object)
	if len(problems) > 0 {
		t.Fatalf("%v\n%s", problems, object)
	}
	if again.Name != tpl.Name || again.Namespace != tpl.Namespace || again.Revision != tpl.Revision {
		t.Fatalf("%s/%s %s becomes %s/%s %s", tpl.Namespace, tpl.Name, tpl.Revision, again.Namespace, again.Name, again.Revision)
	}
}

// TestAppliedFiles checks the files that users apply. With -returned, it compares them with what an
// API server returned.
func TestAppliedFiles(t *testing.T) {
	known := map[string]*templates.Template{}
	for _, pattern := range appliedFiles {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal("no files ", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !templates.IsFile(filepath.Base(file)) {
				continue
			}
			found, problems := templates.Parse(file, text)
			if len(problems) > 0 {
				t.Error(problems)
			}
			if len(found) == 1 {
				known[strings.TrimSuffix(filepath.Base(file), ".yaml")] = found[0]
			}
		}
	}
	if *returned == "" {
		return
	}
	objects, err := filepath.Glob(filepath.Join(*returned, "*"))
	if err != nil || len(objects) == 0 {
		t.Fatal("no objects in ", *returned, err)
	}
	for _, object := range objects {
		text, err := os.ReadFile(object)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(filepath.Base(object), func(t *testing.T) {
			tpl := known[strings.TrimSuffix(filepath.Base(object), filepath.Ext(object))]
			if tpl == nil {
				t.Fatal("no file has this name")
			}
			checkApplied(t, tpl, text)
		})
	}
}

// FuzzApplied checks that a template without problems has the same revision if kubectl applies it.
func FuzzApplied(f *testing.F) {
	for _, pattern := range append(appliedFiles, "testdata/*/*.yaml") {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatal("no files ", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(string(text))
		}
	}
	for _, value := range []string{"on", "010", "0o10", "1_000", "1:30", ".5", "1e3", "1.0", "~", "2001-01-01", "!!binary aGk=", `"\x85"`, "+1", "0b1", "<<"} {
		f.Add(valueOf(value, value, value, value))
	}
	f.Fuzz(func(t *testing.T, text string) {
		found, problems := templates.Parse("x.yaml", []byte(text))
		if len(problems) > 0 || len(found) == 0 {
			return
		}
		objects := asJSON(t, text)
		if len(objects) != len(found) {
			t.Fatalf("%d templates, and kubectl sends %d", len(found), len(objects))
		}
		for i, object := range objects {
			checkApplied(t, found[i], object)
		}
	})
}
