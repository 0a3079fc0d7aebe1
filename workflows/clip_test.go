package workflows

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/state"
)

// A stored reason keeps its cause and the remedy, which are at its end, and the chain of the audit trail covers it as it is stored.
func TestStoredReasonsKeepTheirEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		subject, remedy := "apply shop/web to prod: ", ": pods are forbidden (ask é the owner)"
		text := subject + strings.Repeat("é ", rapid.IntRange(0, 600).Draw(t, "length")) + remedy
		s := &shell{mailbox: &state.Mailbox{}}
		s.mailbox.AppendAudit(entities.AuditEntry{Text: clip(text), Reason: clip(text)})
		stored := s.mailbox.Audit[0]
		for _, reason := range []string{stored.Text, stored.Reason} {
			require.LessOrEqual(t, len(reason), maxText)
			require.True(t, utf8.ValidString(reason))
			require.True(t, strings.HasPrefix(reason, subject) && strings.HasSuffix(reason, remedy), reason)
		}
	})
}
