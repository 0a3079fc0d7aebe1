package board

import (
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/converge-engine/converge/entities"
)

// parametersField is the field of a release whose inputs are the parameters that the service declares.
const parametersField = "parameters"

// parameterPrefix begins the name of such an input: "parameter:int:replicas".
const parameterPrefix = "parameter:"

// parameterFields returns an input for each parameter that a release of a version can set.
func parameterFields(spec *entities.Spec, given url.Values) (fields []field) {
	if spec == nil {
		return nil
	}
	for _, p := range spec.Parameters {
		if slices.ContainsFunc(spec.Aspects, func(a entities.Aspect) bool { return slices.Contains(a.Parameters, p.Name) }) {
			continue // a release of the aspect sets it
		}
		name := parameterPrefix + string(p.Type) + ":" + p.Name
		f := field{Name: name, Label: p.Name, Kind: kindText, Value: given.Get(name), Required: p.Required, None: "as declared", Help: "A parameter of type " + string(p.Type) + "."}
		switch p.Type {
		case entities.ParamBool:
			f.Kind, f.Options = kindChoice, []string{"", "true", "false"}
		case entities.ParamSecret:
			f.Help = "A reference to a secret, not the secret."
		}
		if !p.Required {
			f.Help += " Empty: as declared."
		}
		fields = append(fields, f)
	}
	return fields
}

// parametersOf returns the parameters of a form. Text that is no value of its type stays text, which the service refuses with what it expects.
func parametersOf(form url.Values) map[string]json.RawMessage {
	parameters := map[string]json.RawMessage{}
	for _, key := range entities.SortedKeys(form) {
		kind, name, ok := strings.Cut(strings.TrimPrefix(key, parameterPrefix), ":")
		text := strings.TrimSpace(form.Get(key))
		if !ok || !strings.HasPrefix(key, parameterPrefix) || text == "" {
			continue
		}
		_, notNumber := strconv.ParseFloat(text, 64)
		number := (kind == string(entities.ParamInt) || kind == string(entities.ParamFloat)) && notNumber == nil
		if number && json.Valid([]byte(text)) || kind == string(entities.ParamBool) && (text == "true" || text == "false") {
			parameters[name] = json.RawMessage(text)
			continue
		}
		parameters[name], _ = json.Marshal(text) // a text is always valid
	}
	return parameters
}
