package contracts

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/intent/store"
)

var freeze = flag.String("freeze", "", "keep today's contracts as those of a released version, such as v2 (make freeze-contracts)")

const released = "testdata"

// What every released version wrote is read, and what is written now they read: a field that is gone, or of another
// type, is named with what to do instead. There is nothing to compare with before the first release.
func TestContractsHoldBothWays(t *testing.T) {
	require.Empty(t, broken(t, released, All()))
}

// broken says what of the contracts of the versions in a folder no longer holds.
func broken(t *testing.T, folder string, contracts []Contract) (wrong []string) {
	t.Helper()
	versions, err := filepath.Glob(folder + "/v*")
	require.NoError(t, err)
	now := map[string]Contract{}
	for _, c := range contracts {
		require.NotContains(t, now, c.Name, "one name, one contract")
		now[c.Name] = c
	}
	for _, version := range versions {
		for _, before := range readReleased(t, version) {
			c, there := now[before.Contract]
			if !there {
				wrong = append(wrong, fmt.Sprintf("%s has %q, which is gone: keep it until no released version has it", version, before.Contract))
				continue
			}
			lines, err := c.Compare(before)
			require.NoError(t, err)
			for _, line := range lines {
				wrong = append(wrong, version+": "+line)
			}
		}
	}
	return wrong
}

// A made-up version N-1 is compared with a made-up version N, as released versions will be.
func TestAVersionIsComparedWithTheOneBefore(t *testing.T) {
	type before struct {
		Version string `json:"version"`
		Count   int    `json:"count"`
	}
	type now struct {
		Version string `json:"version"`
		Lines   int    `json:"lines,omitempty"`
	}
	folder := t.TempDir()
	released := []Contract{{Name: "kept", Number: 1, Form: before{}}, {Name: "changed", Number: 1, Form: before{}}, {Name: "removed", Number: 1, Form: before{}}}
	freezeContracts(t, filepath.Join(folder, "v1"), released)
	require.Empty(t, broken(t, folder, released))
	require.Equal(t, []string{
		folder + "/v1: changed: count is gone, which the version before writes and wants to read; keep it until no released version has it, or give the contract another number (CONTRIBUTING.md, Contracts)",
		folder + `/v1 has "removed", which is gone: keep it until no released version has it`,
	}, broken(t, folder, []Contract{{Name: "kept", Number: 1, Form: before{}}, {Name: "changed", Number: 1, Form: now{}}}))
}

func readReleased(t *testing.T, version string) []Released {
	t.Helper()
	files, err := filepath.Glob(version + "/*.json")
	require.NoError(t, err)
	var all []Released
	for _, file := range files {
		if filepath.Base(file) == namesFile {
			continue
		}
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		var r Released
		require.NoError(t, json.Unmarshal(data, &r), file)
		all = append(all, r)
	}
	return all
}

// namesFile has the names by which versions find each other: of queues, workflows, signals, activities, attributes.
const namesFile = "names.json"

// Names are never changed: each is what a released version calls it.
func TestNamesStay(t *testing.T) {
	now := names(t)
	versions, err := filepath.Glob(released + "/v*/" + namesFile)
	require.NoError(t, err)
	for _, file := range versions {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		var before map[string]string
		require.NoError(t, json.Unmarshal(data, &before))
		for constant, name := range before {
			require.Equal(t, name, now[constant], "%s: protocol.%s is a name that released versions use; give what is new another constant", file, constant)
		}
	}
}

// names are the constants of package protocol that are text.
func names(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../entities/protocol/names.go", nil, 0)
	require.NoError(t, err)
	out := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, name := range spec.Names {
			if i >= len(spec.Values) {
				break
			}
			if lit, ok := spec.Values[i].(*ast.BasicLit); ok && lit.Kind == token.STRING {
				out[name.Name], err = strconv.Unquote(lit.Value)
				require.NoError(t, err)
			}
		}
		return true
	})
	require.NotEmpty(t, out)
	return out
}

// unshared are names without a contract: what they carry says nothing.
var unshared = map[string]string{
	"QueryState":     "not public; it is the state of the service",
	"Grant":          "a verb of Runtime", // by its row
	"TakeOver":       "what a grant may name",
	"PinApplication": "what a grant may name",
	"ErrRefused":     "an error",
	"ErrStore":       "an error",
	"ErrTimeout":     "an error",
	"ErrIssuer":      "an error",
	"ErrUnchanged":   "an error",
	"ErrPutOff":      "an error",
	"ErrDamaged":     "an error",
	"TaskQueue":      "a queue",
	"SignalLease":    "a verb of Runtime",
	"SignalKeep":     "a verb of Runtime",
	"SignalGive":     "a verb of Runtime",
	"ActivitySpill":  "its answer is a digest",
}

// Whatever has a name in the protocol, or is written to the store, has a contract.
func TestEveryNameHasAContract(t *testing.T) {
	var of []string
	for _, c := range All() {
		of = append(of, c.Of)
	}
	for constant, name := range names(t) {
		if unshared[constant] == "" && !strings.HasPrefix(constant, "Attr") {
			require.Contains(t, of, name, "protocol.%s: add what it carries to contracts.go", constant)
		}
	}
	bytesOnly := []string{"PutBundle", "PutState"}
	writes := regexp.MustCompile(`^(Put|Create|Publish|Append|Claim)`)
	for method := range reflect.TypeFor[*store.Store]().Methods() {
		if name := method.Name; writes.MatchString(name) && !slices.Contains(bytesOnly, name) {
			require.Contains(t, of, name, "store.%s: add the record that it writes to contracts.go", name)
		}
	}
}

// The comparison notices what it is there for, and says what to do.
func TestCompareNamesWhatDoesNotGoTogether(t *testing.T) {
	type before struct {
		Version string   `json:"version"`
		Count   int      `json:"count"`
		Lines   []string `json:"lines"`
	}
	type added struct {
		before
		New string `json:"new,omitempty"`
	}
	type always struct {
		before
		New string `json:"new"`
	}
	type removed struct {
		Version string   `json:"version"`
		Lines   []string `json:"lines"`
	}
	type retyped struct {
		Version string   `json:"version"`
		Count   string   `json:"count"`
		Lines   []string `json:"lines"`
	}
	type nested struct {
		Version string            `json:"version"`
		Count   int               `json:"count"`
		Lines   []struct{ N int } `json:"lines"`
	}
	for _, c := range []struct {
		name   string
		form   any
		strict bool
		number int
		want   string
	}{
		{"the same", before{}, true, 1, ""},
		{"a field more", added{}, false, 1, ""},
		{"a field more that is always written", always{}, false, 1, ""},
		{"a field more of a person", added{}, true, 1, ""},
		{"one that is always sent", always{}, true, 1, "x: new is new and always written, and the version before refuses it; mark it omitempty"},
		{"a field less", removed{}, false, 1, "x: count is gone, which the version before writes and wants to read; keep it until"},
		{"another type", retyped{}, false, 1, "count was a number and is a string now, which the version before cannot read; leave it"},
		{"another type within", nested{}, false, 1, "x: what the version before wrote is not read: json: cannot unmarshal string"},
		{"another number", removed{}, false, 2, ""},
	} {
		old, err := Contract{Name: "x", Number: 1, Strict: c.strict, Form: before{}}.Release()
		require.NoError(t, err)
		wrong, err := Contract{Name: "x", Number: c.number, Strict: c.strict, Form: c.form}.Compare(old)
		require.NoError(t, err)
		if c.want == "" {
			require.Empty(t, wrong, c.name)
		} else {
			require.Contains(t, strings.Join(wrong, "\n"), c.want, c.name)
		}
	}
}

// TestFreezeContracts keeps today's contracts, when a version is released.
func TestFreezeContracts(t *testing.T) {
	if *freeze == "" {
		t.Skip("freezes only with -freeze VERSION: make freeze-contracts")
	}
	freezeContracts(t, filepath.Join(released, *freeze), All())
}

func freezeContracts(t *testing.T, dir string, contracts []Contract) {
	t.Helper()
	require.NoDirExists(t, dir, "what is released never changes")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	write := func(name string, v any) {
		data, err := json.MarshalIndent(v, "", " ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), append(data, '\n'), 0o644))
	}
	for _, c := range contracts {
		r, err := c.Release()
		require.NoError(t, err)
		write(slug(c.Name)+".json", r)
	}
	write(namesFile, names(t))
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

func slug(name string) string { return notInNames.ReplaceAllString(strings.ToLower(name), "-") }
