package explain

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
)

// A text of a user is shown literally in the Temporal UI: it makes no link, image, cell or line.
func TestMarkdownShowsTextLiterally(t *testing.T) {
	const hostile = "v1 |\n\n![x](http://evil/p.png) [go-live: PASS](http://evil) <img src=x> &lt; `c` **PASS** ~~no~~ \\| \x1b[31m\u202e"
	const plain = `v1 \| !\[x\](http://evil/p.png) \[go-live: PASS\](http://evil) &lt;img src=x> &amp;lt; ` + "`c`" + ` \*\*PASS\*\* \~\~no\~\~ \\\| \\x1b\[31m\\u202e`
	text := Markdown(protocol.Status{Application: "shop", Service: "web", Headline: hostile})
	require.Equal(t, "**"+plain+"** · incarnation 0\n", text)
	row := markdownRow(protocol.ChannelStatus{Name: "prod", Status: "FAILED_ROLLBACK", Current: "[a](b)"}, newest(protocol.Status{}))
	require.Contains(t, row, `\[a\](b)`)
	require.Contains(t, row, "FAILED_ROLLBACK")
}
