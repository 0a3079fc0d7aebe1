package entities

import (
	"cmp"
	"time"
)

// NoticeOrder is the place of a notice (a publication, a pin, an unpin) among all that an application ever sends.
type NoticeOrder struct {
	// Newest is the highest incarnation at that time, which goes on where it was even when the application was lost.
	Newest int64 `json:"newest"`
	// Count grows by at least one with each notice.
	Count int64 `json:"count"`
}

// Compare is negative when o comes before other, and positive when it comes after it.
func (o NoticeOrder) Compare(other NoticeOrder) int {
	return cmp.Or(cmp.Compare(o.Newest, other.Newest), cmp.Compare(o.Count, other.Count))
}

// After is the order of the next notice. Where none is remembered the count begins at the time: above whatever was
// counted before that was forgotten.
func (o NoticeOrder) After(newest int64, now time.Time) NoticeOrder {
	if o.Count == 0 {
		o.Count = now.Unix()
	}
	return NoticeOrder{Newest: max(o.Newest, newest), Count: o.Count + 1}
}
