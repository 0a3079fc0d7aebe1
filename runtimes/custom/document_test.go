package custom

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

const fullDocument = `{
  "objects": [
    {
      "name": "web", "objectType": "process",
      "versions": [
        {"version": "v2", "active": true, "drifted": true, "replicas": 3, "availableReplicas": 2.0, "targetReplicas": 4},
        {"version": ""}
      ],
      "status": "FAILED",
      "externalLinks": [
        {"type": "DETAIL", "url": "http://127.0.0.1:8101/", "name": "page"},
        {"type": "LOG", "url": "file:///tmp/log", "name": "log"},
        {"type": "APP", "url": "http://a", "name": "app"},
        {"url": "http://b", "name": "plain"}
      ],
      "debugEvents": [{"timestamp": "2026-11-21T10:00:00.5+01:00", "message": "started"}],
      "message": "one of three is not healthy", "futureField": {"a": [1]}
    },
    {"name": "web", "objectType": "volume", "status": null, "versions": null, "externalLinks": [], "message": null}
  ],
  "schema": 2
}
`

// The whole document, its defaults and what is ignored.
func TestParseDocument_C4(t *testing.T) {
	objects, err := ParseDocument([]byte(fullDocument))
	require.NoError(t, err)
	require.Equal(t, []entities.Object{
		{
			Name: "web", Type: "process", Status: entities.ObjectFailed, Message: "one of three is not healthy",
			Versions: []entities.ObjectVersion{
				{Version: "v2", Active: true, Drifted: true, Replicas: 3, AvailableReplicas: 2, TargetReplicas: 4},
				{},
			},
			Links: []entities.Link{
				{Type: "DETAIL", URL: "http://127.0.0.1:8101/", Name: "page"},
				{Type: "LOG", URL: "file:///tmp/log", Name: "log"},
				{Type: "UNKNOWN", URL: "http://a", Name: "app"},
				{Type: "UNKNOWN", URL: "http://b", Name: "plain"},
			},
			Events: []entities.Event{{Timestamp: time.Date(2026, 11, 21, 9, 0, 0, 5e8, time.UTC), Message: "started"}},
		},
		{Name: "web", Type: "volume", Status: entities.ObjectPending},
	}, objects)

	objects, err = ParseDocument([]byte(`{"objects": []}`))
	require.NoError(t, err)
	require.Empty(t, objects)
}

// Every kind of malformed document, with the exact words.
func TestMalformedDocument_C6(t *testing.T) {
	object := func(fields string) string { return `{"objects": [{"name": "a", "objectType": "b"` + fields + `}]}` }
	for _, c := range []struct{ name, document, want string }{
		{"empty", "", `line 1, column 1: nothing on stdout; expected a JSON document`},
		{"blank", " \n\t\n", `line 1, column 1: nothing on stdout; expected a JSON document`},
		{"text", "\n  Error: no such host\n", `line 2, column 3: not JSON: it begins with "Error: no such host\n"`},
		{"text before", "ok\n{}", `line 1, column 1: not JSON: it begins with "ok\n{}"`},
		{"html", "<html>" + strings.Repeat("x", 100), `line 1, column 1: not JSON: it begins with "<html>` + strings.Repeat("x", 55) + `…"`},
		{"escape codes", "\x1b[31mred", `line 1, column 1: not JSON: it begins with " [31mred"`},
		{"byte order mark", "\ufeff{}", `line 1, column 1: not JSON: it begins with "\ufeff{}"`},
		{"cut short", "{\"objects\": [\n{\"name\": \"a\"", `line 2, column 13: the document ends too early`},
		{"comma too many", "{\"objects\": [],}", `line 1, column 16: invalid character '}' looking for beginning of object key string`},
		{"comment", "{ // objects\n}", `line 1, column 3: invalid character '/' looking for beginning of object key string`},
		{"trailing text", "{\"objects\": []}\ndone\n", `line 2, column 1: more after the document: "done\n"`},
		{"second document", `{"objects": []} {}`, `line 1, column 17: more after the document: "{}"`},
		{"not UTF-8", "{\"objects\": [], \"n\": \"é\xff\"}", `line 1, column 24: byte 0xff is not UTF-8`},
		{"too deep", strings.Repeat("[", 20000), `line 1, column 10001: invalid character '[' exceeded max depth`},
		{"a list", `[]`, `line 1, column 1: a list; expected an object with "objects"`},
		{"a string", `"x"`, `line 1, column 1: "x"; expected an object with "objects"`},
		{"no objects", `{}`, `objects: missing; expected a list ([] if there are no objects)`},
		{"null objects", `{"objects": null}`, `objects: null; expected a list ([] if there are no objects)`},
		{"wrong case", `{"Objects": []}`, `objects: missing; expected a list ([] if there are no objects)`},
		{"objects of wrong type", `{"objects": {}}`, `objects: an object; expected a list`},
		{"object of wrong type", `{"objects": [7]}`, `objects[0]: the number 7; expected an object`},
		{"null object", `{"objects": [null]}`, `objects[0]: null; expected an object`},
		{"no name", `{"objects": [{"objectType": "b"}]}`, `objects[0].name: missing; expected a string that is not empty`},
		{"null name", `{"objects": [{"name": null, "objectType": "b"}]}`, `objects[0].name: null; expected a string that is not empty`},
		{"empty name", `{"objects": [{"name": "", "objectType": "b"}]}`, `objects[0].name: ""; expected a string that is not empty`},
		{"name of wrong type", `{"objects": [{"name": 1, "objectType": "b"}]}`, `objects[0].name: the number 1; expected a string`},
		{"no type", `{"objects": [{"name": "a"}]}`, `objects[0].objectType: missing; expected a string that is not empty`},
		{"twice", `{"objects": [{"name": "a", "objectType": "b"}, {"name": "a", "objectType": "c"}, {"name": "a", "objectType": "b"}]}`, `objects[2]: "b" "a" is duplicated; the first is objects[0]`},
		{"status", object(`, "status": "DONE"`), `objects[0].status: "DONE"; expected PENDING, SUCCEEDED or FAILED`},
		{"empty status", object(`, "status": ""`), `objects[0].status: ""; expected PENDING, SUCCEEDED or FAILED`},
		{"status of wrong type", object(`, "status": true`), `objects[0].status: true; expected a string`},
		{"message of wrong type", object(`, "message": ["x"]`), `objects[0].message: a list; expected a string`},
		{"versions of wrong type", object(`, "versions": "v1"`), `objects[0].versions: "v1"; expected a list`},
		{"version as a string", object(`, "versions": ["v1"]`), `objects[0].versions[0]: "v1"; expected an object`},
		{"no version", object(`, "versions": [{"version": "v1"}, {"active": true}]`), `objects[0].versions[1].version: missing; expected a string (empty for unknown)`},
		{"null version", object(`, "versions": [{"version": null}]`), `objects[0].versions[0].version: null; expected a string (empty for unknown)`},
		{"numeric version", object(`, "versions": [{"version": 1.2}]`), `objects[0].versions[0].version: the number 1.2; expected a string`},
		{"active of wrong type", object(`, "versions": [{"version": "v1", "active": "true"}]`), `objects[0].versions[0].active: "true"; expected true or false`},
		{"drifted of wrong type", object(`, "versions": [{"version": "v1", "drifted": 0}]`), `objects[0].versions[0].drifted: the number 0; expected true or false`},
		{"negative replicas", object(`, "versions": [{"version": "v1", "replicas": -1}]`), `objects[0].versions[0].replicas: the number -1; expected a whole number from 0 to 2147483647`},
		{"half a replica", object(`, "versions": [{"version": "v1", "availableReplicas": 1.5}]`), `objects[0].versions[0].availableReplicas: the number 1.5; expected a whole number from 0 to 2147483647`},
		{"huge replicas", object(`, "versions": [{"version": "v1", "targetReplicas": 1e400}]`), `objects[0].versions[0].targetReplicas: the number 1e400; expected a whole number from 0 to 2147483647`},
		{"long number", object(`, "versions": [{"version": "v1", "replicas": ` + strings.Repeat("9", 50) + `}]`), `objects[0].versions[0].replicas: the number ` + strings.Repeat("9", 37) + `…; expected a whole number from 0 to 2147483647`},
		{"replicas as a string", object(`, "versions": [{"version": "v1", "replicas": "3"}]`), `objects[0].versions[0].replicas: "3"; expected a whole number from 0 to 2147483647`},
		{"link without url", object(`, "externalLinks": [{"name": "x"}]`), `objects[0].externalLinks[0].url: missing; expected a string that is not empty`},
		{"link without name", object(`, "externalLinks": [{"url": "http://x"}]`), `objects[0].externalLinks[0].name: missing; expected a string that is not empty`},
		{"link type of wrong type", object(`, "externalLinks": [{"type": 1, "url": "u", "name": "n"}]`), `objects[0].externalLinks[0].type: the number 1; expected a string`},
		{"event without timestamp", object(`, "debugEvents": [{"message": "x"}]`), `objects[0].debugEvents[0].timestamp: missing; expected a string that is not empty`},
		{"event without message", object(`, "debugEvents": [{"timestamp": "2026-11-21T10:00:00Z"}]`), `objects[0].debugEvents[0].message: missing; expected a string that is not empty`},
		{"timestamp in seconds", object(`, "debugEvents": [{"timestamp": 1795000000, "message": "x"}]`), `objects[0].debugEvents[0].timestamp: the number 1795000000; expected a string`},
		{"timestamp without zone", object(`, "debugEvents": [{"timestamp": "2026-11-21T10:00:00", "message": "x"}]`), `objects[0].debugEvents[0].timestamp: "2026-11-21T10:00:00"; expected RFC 3339, such as 2006-01-02T15:04:05Z`},
		{"timestamp outside of years", object(`, "debugEvents": [{"timestamp": "9999-12-31T23:59:59-10:00", "message": "x"}]`), `objects[0].debugEvents[0].timestamp: "9999-12-31T23:59:59-10:00"; expected RFC 3339, such as 2006-01-02T15:04:05Z`},
	} {
		t.Run(c.name, func(t *testing.T) {
			objects, err := ParseDocument([]byte(c.document))
			require.EqualError(t, err, c.want)
			require.Nil(t, objects)
			var reading *entities.ReadingError
			require.True(t, errors.As(err, &reading))
			require.Equal(t, runtimes.CodeMalformed, reading.Code)
		})
	}
}

var located = regexp.MustCompile(`^(line \d+, column \d+|objects(\[\d+\])?(\.[a-zA-Z]+(\[\d+\])?)*): `)

// Whatever a command prints, parsing does not panic, an error says where, and what was
// understood is understood the same way again.
func FuzzParseDocument_C6(f *testing.F) {
	for _, seed := range []string{
		fullDocument, "", "null", "[]", "{}", `{"objects":[]}`, `{"objects":null}`, "{\"objects\": []}\nx", "\xff", "not json",
		`{"objects":[{"name":"a","objectType":"b","versions":[{"version":"","replicas":1e3}]}]}`,
		`{"objects":[{"name":"a","objectType":"b","debugEvents":[{"timestamp":"0000-01-01T00:00:00+23:59","message":"m"}]}]}`,
		`{"objects":[{"name":"\ud800","objectType":"\u0000"}]}`,
		`{"objects":[{"name":"a","objectType":"b","externalLinks":[{"type":"LOG","url":"<&>","name":"\u2028"}]}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, stdout []byte) {
		objects, err := ParseDocument(stdout)
		if err != nil {
			require.Regexp(t, located, err.Error())
			return
		}
		again, err := json.Marshal(map[string]any{"objects": objects})
		require.NoError(t, err)
		reparsed, err := ParseDocument(again)
		require.NoError(t, err, string(again))
		require.Equal(t, objects, reparsed)
	})
}
