package selection

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/converge-engine/converge/entities"
)

// Any deviation in an answer is an error, and then nothing is selected.
func TestAnswer_D24(t *testing.T) {
	all := []Candidate{{Name: "eu-1", Updated: true, Stable: true}, {Name: "eu-2", Stable: true}, {Name: "eu-3"}, {Name: "eu-4", Held: true}}
	for name, c := range map[string]struct{ printed, says string }{
		"some, in its order": {`{"next": ["eu-3", "eu-2"]}`, "PASS selects eu-3, eu-2"},
		"none":               {` {"next": []} ` + "\n", "WAIT selects none now"},
		"none for a while":   {`{"next": [], "askAgain": "10m"}`, "WAIT selects none now; runs again after 10m"},
		"nothing":            {"", `it printed ""; expected JSON such as {"next": ["eu-1"], "askAgain": "10m"}`},
		"text":               {"all is well", `it printed "all is well"; expected JSON`},
		"two":                {`{"next": []} {"next": ["eu-2"]}`, "expected JSON"},
		"no list":            {`{"askAgain": "10m"}`, "expected JSON"},
		"another field":      {`{"next": ["eu-2"], "skip": true}`, "expected JSON"},
		"all":                {`{"next": "all"}`, "expected JSON"},
		"unknown":            {`{"next": ["eu-2", "eu-9"]}`, `it selects "eu-9", which is not an instance that the release concerns here`},
		"nameless":           {`{"next": [""]}`, `it selects "", which is not an instance`},
		"updated":            {`{"next": ["eu-1"]}`, `it selects "eu-1", which is updated already`},
		"held":               {`{"next": ["eu-4"]}`, `it selects "eu-4", which is held`},
		"twice":              {`{"next": ["eu-2", "eu-2"]}`, `it selects "eu-2", which is named twice`},
		"no duration":        {`{"next": [], "askAgain": "soon"}`, `askAgain is "soon"; expected a duration such as 10m, from 1s to 24h`},
		"too soon":           {`{"next": [], "askAgain": "1ms"}`, `askAgain is "1ms"`},
		"too late":           {`{"next": [], "askAgain": "25h"}`, `askAgain is "25h"`},
		"backwards":          {`{"next": [], "askAgain": "-10m"}`, `askAgain is "-10m"`},
		"beyond the bound":   {`{"next": ["eu-2"]}` + strings.Repeat(" ", MaxAnswerBytes), "it printed more than 12 KiB"},
		"a cut beginning":    {"(the first 20 bytes are left out)\n" + `{"next": ["eu-2"]}`, "expected JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := ToReading(c.printed, all, noon)
			if err != nil {
				require.ErrorContains(t, err, c.says)
				require.Zero(t, r)
				return
			}
			require.Equal(t, c.says, string(r.Verdict)+" "+r.Reason)
		})
	}
	r, err := ToReading(`{"next": [], "askAgain": "10m"}`, all, noon)
	require.NoError(t, err)
	require.Equal(t, noon.Add(10*time.Minute), r.Retry)
	later, err := ToReading(`{"next": [], "askAgain": "10m"}`, all, noon.Add(time.Minute))
	require.NoError(t, err)
	require.Equal(t, r.Digest(), later.Digest(), "the same answer again is no change")
	two, err := ToReading(`{"next": ["eu-2"]}`, all, noon)
	require.NoError(t, err)
	three, err := ToReading(`{"next": ["eu-3"]}`, all, noon)
	require.NoError(t, err)
	require.NotEqual(t, two.Digest(), three.Digest(), "another selection is a change")
}

// For any selection of a command: no other instance is next, none that is not free, and no more become unavailable, or are in progress,
// than allowed.
func TestSelectByCommandProperty_D24(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := make([]InstanceState, rapid.IntRange(0, 10).Draw(t, "instances"))
		for n := range all {
			all[n] = InstanceState{
				Updated: rapid.Bool().Draw(t, "updated"), Unaffected: rapid.IntRange(0, 5).Draw(t, "apart") == 0,
				Held: rapid.IntRange(0, 5).Draw(t, "held") == 0, Stable: rapid.IntRange(0, 3).Draw(t, "stable") > 0,
			}
		}
		policy := &entities.Rollout{Command: []string{"./select.sh"}}
		if rapid.Bool().Draw(t, "bounded") {
			policy.MaxUnavailable = &entities.Amount{Number: rapid.IntRange(1, 5).Draw(t, "most")}
		}
		var chosen []int
		if len(all) > 0 {
			chosen = rapid.SliceOfNDistinct(rapid.IntRange(0, len(all)-1), 0, len(all), rapid.ID[int]).Draw(t, "chosen")
		}
		s := SelectByCommand(all, policy, chosen)
		unavailable, moving := s.Unavailable, s.moving(all)
		for _, n := range s.Next {
			require.Contains(t, chosen, n)
			require.True(t, all[n].Free())
			if all[n].Stable {
				unavailable++
			}
			moving++
		}
		if s.Allowed > 0 && len(s.Next) > 0 {
			require.LessOrEqual(t, unavailable, max(s.Allowed, s.Unavailable))
			require.LessOrEqual(t, moving, s.Allowed)
		}
		if len(chosen) == 0 {
			require.Empty(t, s.Next, "an empty selection never selects all")
		}
	})
}

// Without a run of the command, all free instances are selected.
func TestSelectAll_D24(t *testing.T) {
	var of []Candidate
	for n := range 4 {
		of = append(of, Candidate{Name: fmt.Sprint("eu-", n), Updated: n == 1, Held: n == 2})
	}
	raw, err := json.Marshal(of)
	require.NoError(t, err)
	require.Equal(t, []string{"eu-0", "eu-3"}, SelectAll(entities.Evaluation{Candidates: string(raw)}, noon).Selected)
	require.Equal(t, entities.Error, SelectAll(entities.Evaluation{}, noon).Verdict)
}
