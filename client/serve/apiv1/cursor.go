package apiv1

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/converge-engine/converge/client/api"
	"github.com/converge-engine/converge/client/read"
)

// historyCursor names the last entry of a page. New entries come before it, so that it keeps its place.
type historyCursor struct {
	At time.Time `json:"at"`
	Of string    `json:"of,omitempty"`
	N  int64     `json:"n"`
}

// before returns how many of some entries, oldest first, come before the cursor. If its entry is not among them, such as while another trail
// is not read, its time decides.
func (c historyCursor) before(entries []read.HistoryEntry) int {
	isIt := func(e read.HistoryEntry) bool { return e.Of == c.Of && e.N == c.N && e.At.Equal(c.At) }
	if at := slices.IndexFunc(entries, isIt); at >= 0 {
		return at
	}
	for n, e := range slices.Backward(entries) {
		if e.At.Before(c.At) {
			return n + 1
		}
	}
	return 0
}

func encodeCursor(cursor any) string {
	data, _ := json.Marshal(cursor) // has no type that could fail
	return base64.RawURLEncoding.EncodeToString(data)
}

func decodeCursor(text string, into any) error {
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.DisallowUnknownFields()
		err = decoder.Decode(into)
	}
	if err != nil {
		return api.NewProblem(api.Invalid, fmt.Errorf("query.after: %q; expected the value of next in the page before", text))
	}
	return nil
}
