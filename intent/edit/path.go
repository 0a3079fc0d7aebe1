package edit

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// step leads from a value to a nested value: .key or ["key"], [3], or [name=web].
type step struct {
	key     string
	index   int    // of a list, if isIndex is set
	isIndex bool   // [3]
	by      string // [name=web]: the item with that field value
	value   string
}

func (s step) String() string {
	switch {
	case s.isIndex:
		return fmt.Sprintf("[%d]", s.index)
	case s.by != "":
		return fmt.Sprintf("[%s=%s]", s.by, s.value)
	}
	return "." + s.key
}

func (s step) of(node *yaml.Node) (*yaml.Node, bool) {
	switch {
	case s.isIndex:
		if node.Kind != yaml.SequenceNode || s.index >= len(node.Content) {
			return nil, false
		}
		return node.Content[s.index], true
	case s.by != "":
		if node.Kind != yaml.SequenceNode {
			return nil, false
		}
		for _, item := range node.Content {
			if field, ok := (step{key: s.by}).of(item); ok && field.Value == s.value {
				return item, true
			}
		}
		return nil, false
	}
	if node.Kind != yaml.MappingNode {
		return nil, false
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == s.key {
			return node.Content[i+1], true
		}
	}
	return nil, false
}

// parse parses KIND/NAME.FIELD….
func parse(path string) (documentName, []step, error) {
	invalid := fmt.Errorf("invalid path %q; expected KIND/NAME.FIELD, such as Service/web.parameters[name=greeting].default", path)
	kind, rest, ok := strings.Cut(path, "/")
	name, fields, more := strings.Cut(rest, ".")
	if !ok || !more || kind == "" || name == "" {
		return documentName{}, nil, invalid
	}
	var steps []step
	for rest = "." + fields; rest != ""; {
		var s step
		if rest, ok = s.read(rest); !ok {
			return documentName{}, nil, invalid
		}
		steps = append(steps, s)
	}
	return documentName{kind, name}, steps, nil
}

// read parses the next step of a path, and returns the rest.
func (s *step) read(path string) (rest string, ok bool) {
	if after, is := strings.CutPrefix(path, "."); is {
		end := strings.IndexAny(after, ".[")
		if end < 0 {
			end = len(after)
		}
		s.key = after[:end]
		return after[end:], s.key != ""
	}
	if strings.HasPrefix(path, `["`) {
		quoted, err := strconv.QuotedPrefix(path[1:])
		if err != nil {
			return "", false
		}
		s.key, _ = strconv.Unquote(quoted) // it is a valid quoted string
		return strings.CutPrefix(path[1+len(quoted):], "]")
	}
	inside, rest, ok := strings.Cut(strings.TrimPrefix(path, "["), "]")
	if !ok || !strings.HasPrefix(path, "[") {
		return "", false
	}
	if by, equal, is := strings.Cut(inside, "="); is {
		s.by, s.value = by, equal
		return rest, by != ""
	}
	index, err := strconv.Atoi(inside)
	s.index, s.isIndex = index, true
	return rest, err == nil && index >= 0
}
