package sources

import (
	"bytes"
	"fmt"
	"path"
	"reflect"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/canonical"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// GroupECS is the group of the documents of a service on ECS; its kinds are TaskDefinition and Service.
const GroupECS = "ecs"

// taskKind describes one of the two documents of a service on ECS.
type taskKind struct {
	kind, nameField string            // its kind, and the field that contains its name
	inputType       reflect.Type      // the SDK's input type
	refused         map[string]string // rejected fields, and what to use instead
}

func taskKinds() map[string]taskKind {
	return map[string]taskKind{
		"taskDefinition": {"TaskDefinition", "family", reflect.TypeFor[ecs.RegisterTaskDefinitionInput](), nil},
		"service": {"Service", "serviceName", reflect.TypeFor[ecs.CreateServiceInput](), map[string]string{
			"cluster": "no such field: the runtime names the cluster", "taskDefinition": `no such field: set "taskDefinition" next to the service`,
			"clientToken": "no such field: Converge creates one",
		}},
	}
}

// TaskKey is the key in Objects of the document at a path of a service.
func TaskKey(s *config.Document[config.Service], at string) string {
	return s.File + "#" + string(s.Spec.Name) + "#" + at
}

// readTasks reads the documents of a service on ECS.
func (l *objectLoader) readTasks(s *config.Document[config.Service], at string, e *config.ServiceECS) {
	if e == nil {
		return
	}
	for field, document := range map[string]*config.ECSDocument{"taskDefinition": e.TaskDefinition, "service": e.Service} {
		where := at + "." + field
		switch {
		case document == nil:
		case document.Fields != nil:
			l.task(s, where, field, &taskCheck{Decoder: s.Decoder, at: where}, document.Fields)
		case !s.Faulty(where):
			l.readAt(s, where, document.File, asList(func(full string) *strict.Fault { return l.taskFile(s, where, field, full) }))
		}
	}
}

// taskFile reads a document from its own file.
func (l *objectLoader) taskFile(s *config.Document[config.Service], where, field, full string) *strict.Fault {
	text, fault := l.Read(full, config.MaxSource)
	if fault != nil {
		return fault
	}
	var node yaml.Node
	if err := config.DecodeNode(yaml.NewDecoder(bytes.NewReader(text)), &node); err != nil || len(node.Content) == 0 {
		l.into.Incomplete = true
		if err == nil || len(bytes.TrimSpace(text)) == 0 {
			return &strict.Fault{Code: "wrong-type", Message: path.Base(full) + " is empty", Expected: "a mapping"}
		}
		l.Syntax(full, text, err)
		return nil
	}
	d := &strict.Decoder{File: full}
	l.Decoders = append(l.Decoders, d)
	fields, ok := d.Any("", node.Content[0]).(map[string]any)
	if !ok {
		d.Fail("", node.Content[0], strict.Fault{Code: "wrong-type", Message: "this is " + strict.Describe(node.Content[0]), Expected: "a mapping"})
		return nil
	}
	l.task(s, where, field, &taskCheck{Decoder: d}, fields)
	return nil
}

// task checks a document, and stores it if it is valid.
func (l *objectLoader) task(s *config.Document[config.Service], where, field string, c *taskCheck, fields map[string]any) {
	kind := taskKinds()[field]
	c.document(kind, fields)
	if c.Faulty(c.at) {
		l.into.Incomplete = true
		return
	}
	name, _ := fields[kind.nameField].(string)
	data, err := canonical.JSON(fields)
	if err != nil {
		c.Report(c.at, strict.Fault{Code: "wrong-type", Message: "this cannot be JSON: " + err.Error()})
		return
	}
	at := c.At(c.at)
	l.into.Tasks[TaskKey(s, where)] = &Object{
		Decoder: c.Decoder, Source: fmt.Sprintf("%s:%d", c.File, at.Line), Group: GroupECS, Kind: kind.kind, Name: name, NamedAt: strict.Field(c.at, kind.nameField),
		Data: data, Digest: canonical.Hash(data), Texts: c.texts,
	}
}

// taskCheck checks a document against the SDK's input type, and records its texts with substitutions.
type taskCheck struct {
	*strict.Decoder
	at    string // path of the document
	texts []ObjectText
}

func (c *taskCheck) document(kind taskKind, fields map[string]any) {
	c.value(c.at, kind.inputType, fields)
	for _, name := range strict.Keys(kind.refused) {
		if _, given := fields[name]; given {
			c.Report(strict.Field(c.at, name), strict.Fault{Code: "bad-value", Message: fmt.Sprintf("%q cannot be set here", name), Expected: kind.refused[name]})
		}
	}
	if name, _ := fields[kind.nameField].(string); name == "" {
		c.Report(strict.Field(c.at, kind.nameField), strict.Fault{Code: "missing-field", Message: fmt.Sprintf("%q is missing", kind.nameField), Expected: "text"})
	}
	if kind.kind == "TaskDefinition" && fields["containerDefinitions"] == nil {
		c.Report(strict.Field(c.at, "containerDefinitions"), strict.Fault{Code: "missing-field", Message: `"containerDefinitions" is missing`, Expected: "a list with at least one"})
	}
	if strategy, _ := fields["capacityProviderStrategy"].([]any); len(strategy) > 0 && fields["launchType"] != nil {
		c.Report(strict.Field(c.at, "launchType"), strict.Fault{Code: "one-of", Message: `"launchType" and "capacityProviderStrategy" are both given`, Expected: "one of them"})
	}
	if controller, _ := fields["deploymentController"].(map[string]any); controller["type"] != nil && controller["type"] != "ECS" {
		c.Report(strict.Field(c.at, "deploymentController.type"), strict.Fault{
			Code: "bad-value", Message: fmt.Sprintf("the deployment controller %v updates the service on its own", controller["type"]), Expected: "ECS, or no field",
		})
	}
}

// value checks a value against a type of the SDK.
func (c *taskCheck) value(at string, to reflect.Type, v any) {
	if to.Kind() == reflect.Pointer {
		to = to.Elem()
	}
	switch x := v.(type) {
	case nil:
	case map[string]any:
		c.mapping(at, to, x)
	case []any:
		if to.Kind() != reflect.Slice {
			c.reportType(at, "a list", to)
			return
		}
		for i, item := range x {
			c.value(strict.Index(at, i), to.Elem(), item)
			c.rejectNull(strict.Index(at, i), item)
		}
	default:
		c.scalar(at, to, v)
	}
}

func (c *taskCheck) mapping(at string, to reflect.Type, given map[string]any) {
	if to.Kind() != reflect.Struct && to.Kind() != reflect.Map {
		c.reportType(at, "a mapping", to)
		return
	}
	for _, name := range strict.Keys(given) {
		path := strict.Key(at, name)
		var into reflect.Type
		switch to.Kind() {
		case reflect.Map:
			into = to.Elem()
		default:
			names := fieldNames(to)
			field, ok := to.FieldByName(names[name])
			if !ok {
				c.Report(path, strict.Unknown("unknown-field", fmt.Sprintf("unknown field %q", name), name, strict.Keys(names)))
				continue
			}
			into = field.Type
		}
		c.value(path, into, given[name])
		if to.Kind() == reflect.Map || isPair(to) {
			c.rejectNull(path, given[name])
		}
	}
}

// fieldNames returns the fields of an SDK struct by their names in AWS documents.
func fieldNames(of reflect.Type) map[string]string {
	names := map[string]string{}
	for i := range of.NumField() {
		if f := of.Field(i); f.IsExported() && f.Type.Kind() != reflect.Interface && f.Name != "ResultMetadata" {
			names[strings.ToLower(f.Name[:1])+f.Name[1:]] = f.Name
		}
	}
	return names
}

// scalar checks a string, a number or a boolean. Values with substitutions are checked after substitution.
func (c *taskCheck) scalar(at string, to reflect.Type, v any) {
	text, isText := v.(string)
	if isText && config.HasSubstitution(text) {
		c.texts = append(c.texts, ObjectText{at, text})
		if to.Kind() == reflect.Slice || to.Kind() == reflect.Struct || to.Kind() == reflect.Map {
			c.reportType(at, "text", to)
		}
		return
	}
	fits := false
	switch kind := reflect.ValueOf(v).Kind(); to.Kind() {
	case reflect.String:
		fits = isText && c.isWrittenAsText(at)
	case reflect.Bool:
		fits = kind == reflect.Bool
	case reflect.Int32, reflect.Int64:
		fits = kind >= reflect.Int && kind <= reflect.Uint64
	case reflect.Float32, reflect.Float64:
		fits = kind >= reflect.Int && kind <= reflect.Float64
	}
	switch {
	case !fits:
		c.reportType(at, displayKind(v), to)
	case isText:
		c.oneOf(at, to, text)
	}
}

// oneOf rejects a value that is not in the SDK's enum.
func (c *taskCheck) oneOf(at string, to reflect.Type, text string) {
	method := reflect.New(to).MethodByName("Values")
	if !method.IsValid() {
		return
	}
	var names []string
	known := method.Call(nil)[0]
	for i := range known.Len() {
		names = append(names, known.Index(i).String())
	}
	for _, name := range names {
		if name == text {
			return
		}
	}
	c.Report(at, strict.Unknown("bad-value", fmt.Sprintf("%q is not possible here", strict.Clip(text)), text, names))
}

// isPair reports whether a struct is a pair of a name and a value: a variable or a secret of a container.
func isPair(of reflect.Type) bool {
	return of == reflect.TypeFor[types.KeyValuePair]() || of == reflect.TypeFor[types.Secret]()
}

// rejectNull rejects a value that YAML has as null where it cannot be left out: ECS would not have the entry, or not its value.
func (c *taskCheck) rejectNull(at string, v any) {
	if v == nil && !c.Faulty(at) {
		c.Report(at, strict.Fault{Code: "wrong-type", Message: "this is empty", Expected: `a value ("" for an empty text)`})
	}
}

// isWrittenAsText reports whether a text is one in YAML too: an unquoted date is not.
func (c *taskCheck) isWrittenAsText(at string) bool {
	_, _, isText, found := c.Written(at)
	return isText || !found
}

func (c *taskCheck) reportType(at, description string, to reflect.Type) {
	wanted := map[reflect.Kind]string{
		reflect.Struct: "a mapping", reflect.Map: "a mapping", reflect.Slice: "a list", reflect.String: "text", reflect.Bool: "true or false",
		reflect.Int32: "a whole number", reflect.Int64: "a whole number", reflect.Float32: "a number", reflect.Float64: "a number",
	}
	expected := wanted[to.Kind()]
	if written, hint, _, found := c.Written(at); found {
		description = written
		if to.Kind() == reflect.String {
			expected += hint
		}
	}
	c.Report(at, strict.Fault{Code: "wrong-type", Message: "this is " + description, Expected: expected})
}

func displayKind(v any) string {
	switch v.(type) {
	case string:
		return "text"
	case bool:
		return "true or false"
	}
	return "a number"
}
