// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kubectlyaml "sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/templates/fragment"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/yamlnode"
)

// MaxObject limits the size of a template in the API server, in bytes. Many users may create one, and
// each Pillion reads all.
const MaxObject = 128 << 10

// maxDifferences limits the number of reported differences of a document. An alias can repeat one
// difference very often.
const maxDifferences = 10

// kubectlReader splits a file into documents as kubectl does.
type kubectlReader struct{ documents *utilyaml.YAMLReader }

func newKubectlReader(data []byte) *kubectlReader {
	withoutMark := bytes.TrimPrefix(data, []byte("\ufeff"))
	return &kubectlReader{utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(withoutMark)))}
}

// nextDocument returns the next document that is not empty, or nil if kubectl finds none.
func (a *kubectlReader) nextDocument() []byte {
	for {
		text, err := a.documents.Read()
		if err != nil {
			return nil
		}
		var doc yaml.Node
		if yaml.Unmarshal(text, &doc) != nil || !noValue(&doc) {
			return text
		}
	}
}

// noValue reports whether a document has no value.
func noValue(doc *yaml.Node) bool {
	return len(doc.Content) == 0 || doc.Content[0].ShortTag() == "!!null"
}

// storedValue returns the value that the API server stores if kubectl applies a document.
func storedValue(document []byte) (value any, err error) {
	sent, err := kubectlyaml.YAMLToJSON(document)
	if err == nil {
		err = utiljson.Unmarshal(sent, &value) // an int64 or a float64 for each number
	}
	return value, err
}

// sameApplied checks that the document has the same meaning after kubectl apply. Document is the
// part of the file that kubectl reads for y, or nil.
func (c *parser) sameApplied(y *yaml.Node, document []byte) bool {
	if document == nil {
		c.ReportProblem(y, "", "kubectl does not find this document; begin it with a line that contains only ---")
		return false
	}
	value, err := storedValue(document)
	if err != nil {
		_, message := jsontree.CutLine(strings.TrimPrefix(err.Error(), "yaml: "))
		c.ReportProblem(y, "", "kubectl cannot read this document: %s; write it without directives (%%), tags and aliases", message)
		return false
	}
	c.compareStored(y, value, "")
	return len(c.Problems()) == 0
}

// compareStored compares a value with what the API server stores for it.
func (c *parser) compareStored(y *yaml.Node, stored any, path string) {
	if len(c.Problems()) >= maxDifferences {
		return
	}
	switch y.Kind {
	case yaml.MappingNode:
		c.compareStoredObject(y, stored, path)
	case yaml.SequenceNode:
		list, ok := stored.([]any)
		if !ok || len(list) != len(y.Content) {
			c.ReportProblem(y, path, "kubectl reads another value than this list; %s", plainHint)
			return
		}
		for i, item := range y.Content {
			c.compareStored(item, list[i], fmt.Sprintf("%s[%d]", path, i))
		}
	default:
		if hint := c.storedScalarHint(y, stored); hint != "" {
			c.ReportProblem(y, path, "kubectl reads %s as %s; %s", problem.Cut(y.Value, fragment.MaxValue), problem.Cut(jsonOf(stored), fragment.MaxValue), hint)
		}
	}
}

func (c *parser) compareStoredObject(y *yaml.Node, stored any, path string) {
	object, ok := stored.(map[string]any)
	known := len(c.Problems())
	for key, value := range yamlnode.Members(y) {
		if member, there := object[key.Value]; there {
			c.compareStored(value, member, problem.JoinPath(path, key.Value))
		} else if ok {
			c.ReportProblem(key, problem.JoinPath(path, key.Value), "kubectl reads another key; put it in quotes: %q", key.Value)
		}
	}
	if !ok || len(c.Problems()) == known && len(object) != len(y.Content)/2 {
		c.ReportProblem(y, path, "kubectl reads another value than this object; %s", plainHint)
	}
}

// plainHint is for differences that quotes cannot remove.
const plainHint = "write it without tags, and a merge key (<<) before the other keys"

// storedScalarHint returns what to write if the API server stores another scalar than this one, or "".
func (c *parser) storedScalarHint(y *yaml.Node, stored any) (hint string) {
	text, isText := stored.(string)
	read, err := jsontree.FromYAML(y)
	isRead := string(read.AppendTo(nil))
	inQuotes := fmt.Sprintf("put it in quotes: %q", y.Value)
	switch tag := y.ShortTag(); {
	case tag == "!!str", tag == "!!timestamp", tag == "!!binary":
		if isText && text == y.Value {
			return ""
		}
		if isText || y.Style != 0 {
			return plainHint
		}
		return inQuotes
	case c.IsString(y):
		if jsonOf(stored) == y.Value {
			return ""
		}
		return inQuotes
	case err == nil && jsonOf(stored) == isRead:
		return ""
	case tag == "!!int":
		if i, err := strconv.ParseInt(isRead, 10, 64); err == nil {
			return fmt.Sprintf("write %d", i)
		}
	}
	return inQuotes
}

// jsonOf returns a value that came from JSON as JSON.
func jsonOf(value any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		panic("templates: a value from JSON is no JSON: " + err.Error())
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}
