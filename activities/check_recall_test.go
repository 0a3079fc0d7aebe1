package activities

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
)

// A check that has news each time keeps no slow one from being judged, nor has others asked
// more often than they say.
func TestFlippingCheckKeepsNobodyFromBeingJudged_A7(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJudged()
		j.says1("steady", entities.Pass)
		j.hangs("slow", 5*time.Second, entities.Fail)
		flips := map[bool]entities.Verdict{true: entities.Pass, false: entities.Wait}
		known := map[string]entities.Verdict{}
		var memory recall
		var told time.Duration
		for n := range 40 {
			j.says1("flip", flips[n%2 == 0])
			var looks []entities.CheckLook
			for _, id := range []string{"flip", "steady", "slow"} {
				interval := time.Minute
				if id == "flip" {
					interval = time.Second
				}
				look := checkLook(id, known[id], interval)
				if known[id] == "" {
					look.Known = ""
				}
				looks = append(looks, look)
			}
			s := &schedule{}
			memory.take("s", looks, s, time.Now())
			time.Sleep(max(0, time.Until(s.next(looks)))) // virtual: the server's delay
			for key, reading := range checkAround(t.Context(), looks, s, j.judge) {
				known[key[len("prod/"):]] = reading.Verdict
				if key == "prod/slow" && told == 0 {
					told = time.Since(j.start)
				}
			}
			memory.keep("s", looks, s, time.Now())
		}
		require.Equal(t, entities.Fail, known["slow"], "it was judged")
		require.Less(t, told, 20*time.Second)
		require.LessOrEqual(t, len(j.asked["steady"]), 2+int(time.Since(j.start)/(50*time.Second)), "by its own interval")
		require.Greater(t, len(j.asked["flip"]), 30)
	})
}

// What is asked now must be what was asked then, and a moment ago: else it is due at once.
func TestRecallForgets(t *testing.T) {
	now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	look := checkLook("q", entities.Pass, time.Minute)
	later := now.Add(time.Minute)
	for name, c := range map[string]struct {
		change func(*entities.CheckLook)
		at     time.Time
		want   time.Time
	}{
		"as before":     {func(*entities.CheckLook) {}, now.Add(time.Second), later},
		"news":          {func(l *entities.CheckLook) { l.Known = "FAIL" }, now.Add(time.Second), later},
		"not known":     {func(l *entities.CheckLook) { l.Known = "" }, now.Add(time.Second), time.Time{}},
		"a new rule":    {func(l *entities.CheckLook) { l.Definition = "other" }, now.Add(time.Second), time.Time{}},
		"a new release": {func(l *entities.CheckLook) { l.Release = "r2" }, now.Add(time.Second), time.Time{}},
		"long ago":      {func(*entities.CheckLook) {}, now.Add(time.Hour), time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			var memory recall
			memory.keep("s", []entities.CheckLook{look}, &schedule{at: map[string]pace{look.Key(): {Next: later}}}, now)
			asked, s := look, &schedule{}
			c.change(&asked)
			memory.take("s", []entities.CheckLook{asked}, s, c.at)
			require.Equal(t, c.want, s.due(asked))
			again := &schedule{}
			memory.take("s", []entities.CheckLook{look}, again, c.at)
			require.True(t, again.due(look).IsZero(), "only once")
		})
	}
}
