package protocol

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
)

// PlainLimit is the size in bytes up to which a spec or a state goes through history as readable
// JSON; beyond it, it is packed.
const PlainLimit = 16 << 10

// Packed is JSON, compressed with gzip: large values full of names shrink to a fraction.
type Packed []byte

// Pack packs a value.
func Pack(v any) (Packed, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	return packed(gzip.NewWriter(&out), plain, &out)
}

// Packer packs again and again, one value at a time, quickly and less tightly: what it needs for that is most of a megabyte. The zero value is ready.
type Packer struct{ zip *gzip.Writer }

// Pack packs a value that is JSON already.
func (p *Packer) Pack(plain []byte) (Packed, error) {
	var out bytes.Buffer
	if p.zip == nil {
		p.zip, _ = gzip.NewWriterLevel(&out, gzip.BestSpeed) // which is a level
	}
	p.zip.Reset(&out)
	return packed(p.zip, plain, &out)
}

func packed(zip *gzip.Writer, plain []byte, out *bytes.Buffer) (Packed, error) {
	_, err := zip.Write(plain)
	if err = errors.Join(err, zip.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Unpack reads a packed value into v.
func (p Packed) Unpack(v any) error {
	r, err := gzip.NewReader(bytes.NewReader(p))
	if err != nil {
		return err
	}
	plain, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return json.Unmarshal(plain, v)
}

// Large tells whether a value is better packed.
func Large(v any) bool {
	plain, err := json.Marshal(v)
	return err == nil && len(plain) > PlainLimit
}
