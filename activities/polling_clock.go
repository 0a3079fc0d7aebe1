package activities

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/converge-engine/converge/intent/store"
)

// This file reports the clock of this worker with its heartbeats, for `converge admin doctor`.

// clockOffset is ClockOffset, if it is measured.
func (a *Activities) clockOffset() (offset time.Duration, measured bool) {
	if a.ClockOffset == nil {
		return 0, false
	}
	return a.ClockOffset(), true
}

// describe adds to a heartbeat which process this worker is, and how far its clock is off.
func (h *hints) describe(b store.Heartbeat) store.Heartbeat {
	if h.clockOffset == nil {
		return b
	}
	offset, measured := h.clockOffset()
	if !measured {
		return b
	}
	host, _ := os.Hostname() // without it, the process alone is named
	b.Process, b.ClockOffset = fmt.Sprintf("%d@%s", os.Getpid(), host), offset.Round(time.Second)
	if text := b.ClockText(); (text != "") != h.polling.clockIsOff {
		if h.polling.clockIsOff = text != ""; text != "" {
			slog.Warn("the clock of this machine is wrong; synchronize it, for example with NTP", "clock", text)
		}
	}
	return b
}
