package verb

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
)

// tables returns all tables of verbs.
func tables() map[string][]Row {
	return map[string][]Row{"service": Service(), "application": Application(), "runtime": Runtime()}
}

// minimal returns the smallest valid payload of each verb.
func minimal(entity, verb string) string {
	switch entity + " " + verb {
	case "service cancel", "service retry", "service release":
		return `{"by":"bob","version":"v1"}`
	case "service approve", "service reject":
		return `{"by":"bob","version":"v1","topic":"go-live"}`
	case "service bypass":
		return `{"by":"bob","version":"v1","channel":"prod","condition":"approval/go-live","reason":"incident"}`
	case "service pin":
		return `{"by":"bob","version":"v1","channel":"prod"}`
	case "service unpin":
		return `{"by":"bob","channel":"prod"}`
	case "service reserve", "service conclude":
		return `{"id":"autumn"}`
	case "application release":
		return `{"by":"bob","services":{"web":{"version":"v2"}}}`
	case "application unmanage":
		return `{"by":"bob","reason":"moving"}`
	case "application publish":
		return `{"by":"ci","hash":"h","manifest":"m"}`
	case "runtime request":
		return `{"id":"a","holder":"service/shop/web","limit":1,"timeout":1}`
	case "runtime keep", "runtime release":
		return `{"id":"a"}`
	case "runtime grant":
		return `{"id":"a","by":"bob"}`
	}
	return `{"by":"bob"}`
}

// Every verb accepts its smallest payload, and rejects unknown fields and a missing caller.
func TestEveryRow(t *testing.T) {
	for _, entity := range entities.SortedKeys(tables()) {
		rows := tables()[entity]
		require.Len(t, slices.Compact(slices.Sorted(slices.Values(Names(rows)))), len(rows), "names are unique")
		for n := range rows {
			row := &rows[n]
			t.Run(entity+" "+row.Name, func(t *testing.T) {
				require.NotEmpty(t, row.Description)
				require.NotContains(t, row.Description, "\n")
				require.Same(t, row, Find(rows, row.Name))
				payload := minimal(entity, row.Name)
				require.NoError(t, json.Unmarshal([]byte(payload), row.Payload()))
				r, err := row.Decode(json.RawMessage(payload))
				require.NoError(t, err)
				require.Equal(t, row.Name, r.Verb)
				for _, name := range row.Required {
					_, err := row.Decode(without(payload, name)) // a name that no request has would not be missed
					require.EqualError(t, err, fmt.Sprintf(`"%s" is missing`, name))
				}
				_, err = row.Decode(json.RawMessage(strings.TrimSuffix(payload, "}") + `,"chanel":"prod"}`))
				require.EqualError(t, err, fmt.Sprintf(`payload of %s: unknown field "chanel"`, row.Name))
				if r.By != "" {
					_, err = row.Decode(without(payload, "by"))
					require.Equal(t, row.unsigned, err == nil)
				}
				require.Equal(t, entity == "service", row.Do != nil)
			})
		}
	}
}

// without is a payload without a field.
func without(payload, name string) json.RawMessage {
	fields := map[string]any{}
	if err := json.Unmarshal([]byte(payload), &fields); err != nil {
		panic(err)
	}
	delete(fields, name)
	raw, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	return raw
}

// The error for an invalid payload names the problem and the expected form.
func TestDecodeRejectsInvalidPayloads(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	for _, tt := range []struct{ verb, payload, want string }{
		{"pause", ``, "pause without a payload; expected JSON as in docs/protocol.md"},
		{"pause", `{`, "payload of pause: not JSON; expected JSON as in docs/protocol.md"},
		{"pause", `"drill"`, "payload of pause: a text; expected an object"},
		{"pause", `{"by":"bob","reason":"` + long(MaxPayload) + `"}`, "payload of pause: 65560 bytes; at most 65536"},
		{"pause", `{"by":7}`, `payload of pause: "by" is a number; expected a text`},
		{"release", `{"by":"bob","version":["v1"]}`, `payload of release: "version" is an array; expected a text`},
		{"pause", `{"by":"bob","chanel":"prod"}`, `payload of pause: unknown field "chanel"`},
		{"pause", `{}`, `"by" is missing; expected the name of the caller`},
		{"pause", `{"by":"  "}`, `"by" is missing; expected the name of the caller`},
		{"pause", `{"by":"bob "}`, `"by" is "bob "; expected a name without surrounding blanks and invisible characters`},
		{"pause", `{"by":"bob\u200b"}`, `"by" is "bob\u200b"; expected a name without surrounding blanks and invisible characters`},
		{"pause", `{"by":"` + long(257) + `"}`, `"by" is 257 bytes long; at most 256`},
		{"pause", `{"by":"bob","requestId":"` + long(257) + `"}`, `"requestId" is 257 bytes long; at most 256`},
		{"pause", `{"by":"bob","reason":"` + long(2049) + `"}`, `"reason" is 2049 bytes long; at most 2048`},
		{"pause", `{"token":"` + long(16385) + `"}`, `"token" is 16385 bytes long; at most 16384`},
		{"pause", `{"by":"bob","channel":"` + long(257) + `"}`, `"channel" is 257 bytes long; at most 256`},
		{"release", `{"by":"bob","version":"v1","id":"` + long(257) + `"}`, `"id" is 257 bytes long; at most 256`},
		{"cancel", `{"by":"bob","version":"` + long(257) + `"}`, `"version" is 257 bytes long; at most 256`},
		{"cancel", `{"by":"bob","olderThan":"` + long(257) + `"}`, `"olderThan" is 257 bytes long; at most 256`},
		{"cancel", `{"by":"bob","except":"` + long(257) + `"}`, `"except" is 257 bytes long; at most 256`},
		{"cancel", `{"by":"bob"}`, `one of "version", "olderThan" and "except" is required`},
		{"cancel", `{"by":"bob","version":"v1","except":"v1"}`, `one of "version", "olderThan" and "except" is required`},
		{"approve", `{"by":"bob","version":"v1","topic":"` + long(257) + `"}`, `"topic" is 257 bytes long; at most 256`},
		{"approve", `{"by":"bob","version":"v1","topic":"x","comment":"` + long(2049) + `"}`, `"comment" is 2049 bytes long; at most 2048`},
		{"approve", `{"by":"bob","topic":"x"}`, `"version" is missing`},
		{"approve", `{"by":"bob","version":"v1"}`, `"topic" is missing`},
		{"bypass", `{"by":"bob","version":"v1","channel":"prod","condition":"` + long(257) + `","reason":"x"}`, `"condition" is 257 bytes long; at most 256`},
		{"bypass", `{"by":"bob","version":"v1","channel":"prod","condition":"x"}`, `"reason" is missing: a bypass needs one`},
		{"bypass", `{"by":"bob","version":"v1","channel":"prod","condition":"x","reason":"  "}`, `"reason" is missing: a bypass needs one`},
		{"pin", `{"by":"bob","version":"v1"}`, `"channel" is missing`},
		{"unpin", `{"by":"bob","channel":"prod","version":"v1"}`, `"version" is not for unpin: a channel has one pin`},
		{"application publish", `{"by":"ci","hash":"h"}`, `"hash" and "manifest" are required; publish with: converge config publish DIR`},
		{"application unpin", `{"by":"ci","incarnation":1}`, `payload of unpin: unknown field "incarnation"`},
		{"application unmanage", `{"by":"bob","service":"web"}`, `"reason" is missing; expected why the service is not managed`},
		{"application unmanage", `{"by":"bob","reason":"x","service":"*"}`, `"service" is "*"; omit it for the whole application`},
		{"application manage", `{"by":"bob","service":"` + long(257) + `"}`, `"service" is 257 bytes long; at most 256`},
		{"runtime request", `{"id":"a","holder":"` + long(257) + `","limit":1,"timeout":1}`, `"id" or "holder" is too long; at most 512 and 256 bytes`},
		{"runtime request", `{"id":"a","holder":"b","timeout":1}`, `"limit" is 0; expected at least 1: without a limit no lease is requested`},
		{"runtime request", `{"id":"a","holder":"b","limit":1}`, `"timeout" is 0s; expected the maximum duration of an apply`},
		{"runtime request", `{"id":"a"}`, `"id" of the lease and "holder", the requesting workflow, are required`},
		{"runtime release", `{}`, `"id" is missing; expected the id of a lease`},
		{"application publish", `{"by":"ci","hash":"h","manifest":"m","runtimes":["eu\u001b[2J"]}`, `"runtimes" has the entry "eu\x1b[2J"; expected 1 to 300 bytes of printable text`},
		{"application publish", `{"by":"ci","hash":"h","manifest":"m","runtimes":[""]}`, `"runtimes" has the entry ""; expected 1 to 300 bytes of printable text`},
		{"application publish", `{"by":"ci","hash":"h","manifest":"m","runtimes":["` + long(301) + `"]}`, `"runtimes" has the entry "` + long(60) + `…"; expected 1 to 300 bytes of printable text`},
		{"application publish", `{"by":"ci","hash":"h","manifest":"m","runtimes":["a"` + strings.Repeat(`,"a"`, 10) + `]}`, `"runtimes" has 11 entries; expected at most 10`},
		{"runtime release", `{"id":"a","by":"bob "}`, `"by" is "bob "; expected a name without surrounding blanks and invisible characters`},
	} {
		entity, verb, ok := strings.Cut(tt.verb, " ")
		if !ok {
			entity, verb = "service", entity
		}
		_, err := Find(tables()[entity], verb).Decode(json.RawMessage(tt.payload))
		require.EqualError(t, err, tt.want)
	}
	_, err := Find(Service(), "release").Decode(json.RawMessage(`{"by":"bob","version":"` + long(257) + `"}`))
	require.NoError(t, err, "a release checks its own version")
}

// Each field of a payload is in the request.
func TestDecode(t *testing.T) {
	r, err := Find(Service(), "approve").Decode(json.RawMessage(`{"by":"bob","version":"v1","topic":"go-live","reason":"seen it"}`))
	require.NoError(t, err)
	require.Equal(t, Request{
		RequestMeta: protocol.RequestMeta{By: "bob", Reason: "seen it"}, Verb: "approve", Version: "v1", Topic: "go-live", Comment: "seen it",
		RequestDigest: r.RequestDigest,
	}, r)
	again, err := Find(Service(), "approve").Decode(json.RawMessage(`{"topic":"go-live","version":"v1","reason":"seen it","by":"ann","requestId":"r1","token":"t"}`))
	require.NoError(t, err)
	require.Equal(t, r.RequestDigest, again.RequestDigest, "of the content, without the caller and the id")
	_, err = Find(Service(), "approve").Decode(json.RawMessage(`{"by":"bob","version":"v1","topic":"go-live","to":["web",""]}`))
	require.EqualError(t, err, `"to" names ""; expected the names of services`)
	r, err = Find(Service(), "release").Decode(json.RawMessage(`{"by":"bob","version":"v1","id":"7","parameters":{"n":1}}`))
	require.NoError(t, err)
	require.Equal(t, "7", r.ID)
	require.Equal(t, map[string]any{"n": 1.0}, r.Release.Parameters)
	r, err = Find(Application(), "pin").Decode(json.RawMessage(`{"token":"t","incarnation":3}`))
	require.NoError(t, err)
	require.Equal(t, Request{RequestMeta: protocol.RequestMeta{Token: "t"}, Verb: "pin", PayloadDigest: r.PayloadDigest, Payload: json.RawMessage(`{"token":"t","incarnation":3}`), RequestDigest: r.RequestDigest, Incarnation: 3}, r)
	require.NotEmpty(t, r.PayloadDigest)
}

// The verbs that require proof under "*", and those that a grant may name, follow from the rows.
func TestAccess_A14(t *testing.T) {
	all := &entities.Identity{Required: []string{"*"}}
	for _, rows := range [][]Row{Service(), Application()} {
		for n := range rows {
			if rows[n].Access != Open {
				require.Equal(t, rows[n].Access == Operator, all.RequiresProof(rows[n].Name), rows[n].Name)
			}
		}
	}
	require.Equal(t, []string{
		"abort", "adopt", "approve", "bypass", "cancel", "delete", "manage", "pause", "pin", "pinApplication", "promote", "publish", "refresh", "reject", "release", "restart", "resume", "retry",
		"return", "rollback", "takeOver", "unmanage", "unpin",
	}, Grantable())
	// The first publication has no grants yet.
	require.ElementsMatch(t, append(grantable(Runtime(), Installation()), protocol.Publish), grantableVerbs)
}

// A verb concerns the channel that it names, those of its topic, or all.
func TestAffectedChannels(t *testing.T) {
	s := state.New("shop", "web")
	s.Spec = &entities.Spec{Channels: []entities.ChannelSpec{
		{Name: "staging"},
		{Name: "eu", Conditions: []entities.Condition{{ID: "approval/go-live", Kind: entities.ManualApproval, Topic: "go-live"}}},
		{Name: "us", Conditions: []entities.Condition{{ID: "approval/go-live", Kind: entities.ManualApproval, Topic: "go-live"}}},
	}}
	for _, tt := range []struct {
		verb string
		r    Request
		want []string
	}{
		{"pause", Request{Channel: "eu"}, []string{"eu"}},
		{"pause", Request{}, []string{"staging", "eu", "us"}},
		{"approve", Request{Topic: "go-live"}, []string{"eu", "us"}},
		{"release", Request{Version: "v1"}, []string{"staging", "eu", "us"}},
	} {
		require.Equal(t, tt.want, Find(Service(), tt.verb).AffectedChannels(s, tt.r))
	}
}

// Do changes nothing; its effect does.
func TestDoChangesNothing(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for n := range service {
		row := &service[n]
		s := state.New("shop", "web")
		id := entities.Only("prod")
		s.ApplySpec(&entities.Spec{
			Channels: []entities.ChannelSpec{{
				Name: "prod", Instances: []entities.InstanceSpec{{Name: id.Name, Runtime: "edge"}},
				Conditions: []entities.Condition{{ID: "approval/go-live", Kind: entities.ManualApproval, Topic: "go-live"}},
			}},
			Runtimes: map[string]*entities.RuntimeSpec{"edge": {}},
		}, "digest", now)
		s.OpenRelease(state.NewRelease{Version: "v1", FullVersion: "v1", Payloads: map[entities.InstanceID]string{id: "p"}, By: "ci"}, now)
		before, err := json.Marshal(s)
		require.NoError(t, err)
		r, err := row.Decode(json.RawMessage(minimal("service", row.Name)))
		require.NoError(t, err)
		require.NoError(t, CheckNames(s, r))
		effect, err := row.Do(s, r, entities.Who{Name: "bob"}, now)
		after, marshalled := json.Marshal(s)
		require.NoError(t, marshalled)
		require.Equal(t, string(before), string(after), row.Name)
		switch {
		case row.Store:
			require.NoError(t, err)
			require.Nil(t, effect)
		case err == nil:
			require.NotEmpty(t, effect(), row.Name)
		default:
			require.NotEmpty(t, err.Error())
		}
	}
}

// A repeated answer is marked as such, if it has a field for that.
func TestRepeat(t *testing.T) {
	require.JSONEq(t, `{"id":"1","version":"v1","incarnation":2,"repeated":true}`,
		string(Find(Service(), "release").Repeat(json.RawMessage(`{"id":"1","version":"v1","incarnation":2}`))))
	require.Nil(t, Find(Service(), "pause").Repeat)
	require.Nil(t, Find(Runtime(), "release").Repeat)
}

// Text is cut at a character boundary.
func TestClip(t *testing.T) {
	require.Equal(t, "abc", Clip("abc", 3))
	require.Equal(t, "é…", Clip("éé", 3))
}

// A payload of a service may have fields that this version does not know; a payload of a user may not, also in a signal.
func TestSignalsOfServicesAreDecodedTolerantly(t *testing.T) {
	rows := Runtime()
	for _, name := range []string{protocol.SignalLease, protocol.SignalKeep, protocol.SignalGive} {
		row := Find(rows, name)
		newer := strings.Replace(minimal("runtime", name), "{", `{"later":1,`, 1)
		_, err := row.DecodeSignal(json.RawMessage(newer))
		require.NoError(t, err, name)
		_, err = row.Decode(json.RawMessage(newer))
		require.ErrorContains(t, err, `unknown field "later"`, name)
	}
	_, err := Find(rows, protocol.SignalGive).DecodeSignal(json.RawMessage(`{"id":"a","by":"bob","later":1}`))
	require.ErrorContains(t, err, `unknown field "later"`)
	_, err = Find(Service(), protocol.Pause).DecodeSignal(json.RawMessage(`{"by":"bob","later":1}`))
	require.ErrorContains(t, err, `unknown field "later"`)
}
