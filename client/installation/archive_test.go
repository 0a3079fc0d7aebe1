package installation

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
)

func testHeader() Header {
	return Header{
		Schema: Schema, ID: "A", At: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), By: "alice",
		Installation: protocol.Installation{ID: "I", Epoch: 3, Namespace: "default", NamespaceID: "N"},
	}
}

func writeArchive(t *testing.T, entries ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := newWriter(&b, testHeader())
	require.NoError(t, err)
	for _, e := range entries {
		require.NoError(t, w.add("logs/"+e, []byte(e)))
	}
	require.NoError(t, w.close())
	return b.Bytes()
}

// readAll returns the names of all entries of a complete archive.
func readAll(archive []byte) (names []string, err error) {
	r, _, err := newReader(bytes.NewReader(archive))
	for err == nil {
		var name string
		if name, _, err = r.next(); err == nil {
			names = append(names, name)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}

func TestArchive(t *testing.T) {
	archive := writeArchive(t, "a", "b")
	_, h, err := newReader(bytes.NewReader(archive))
	require.NoError(t, err)
	require.Equal(t, testHeader(), h)
	names, err := readAll(archive)
	require.NoError(t, err)
	require.Equal(t, []string{"logs/a", "logs/b"}, names)
}

// An archive that was truncated at any point, or changed, is never accepted.
func TestDamagedArchive(t *testing.T) {
	archive := writeArchive(t, "a", "b")
	for n := range archive {
		_, err := readAll(archive[:n])
		require.Error(t, err, "the first %d bytes of %d", n, len(archive))
	}
	zip, err := gzip.NewReader(bytes.NewReader(archive))
	require.NoError(t, err)
	plain, err := io.ReadAll(zip)
	require.NoError(t, err)
	at := bytes.Index(plain, []byte("logs/b"))
	plain[at+512] = 'c' // what b holds
	var b bytes.Buffer
	rewritten := gzip.NewWriter(&b)
	_, err = rewritten.Write(plain)
	require.NoError(t, errors.Join(err, rewritten.Close()))
	_, err = readAll(b.Bytes())
	require.ErrorContains(t, err, "its content has another digest [damaged-archive]")
}

func TestNoArchive(t *testing.T) {
	zipped := func(text string) []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, err := w.Write([]byte(text))
		require.NoError(t, errors.Join(err, w.Close()))
		return b.Bytes()
	}
	for name, data := range map[string][]byte{"empty": nil, "text": []byte("kind: Application"), "zipped text": zipped("kind: Application"), "zipped nothing": zipped("")} {
		_, err := readAll(data)
		require.Error(t, err, name)
		require.Regexp(t, `\[(not-an-archive|damaged-archive)\]$`, err.Error(), name)
	}
	other := testHeader()
	other.Schema = "converge.archive/v9"
	var b bytes.Buffer
	w, err := newWriter(&b, other)
	require.NoError(t, errors.Join(err, w.close()))
	_, err = readAll(b.Bytes())
	require.EqualError(t, err, `not an archive of this version: expected archive.json of schema converge.archive/v1 first, have "archive.json" of schema "converge.archive/v9" [not-an-archive]`)
}
