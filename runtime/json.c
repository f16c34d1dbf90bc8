#include "json.h"

static void skip_space(gos_json_t *json) {
  while (json->at < json->end &&
         (*json->at == ' ' || *json->at == '\t' || *json->at == '\n' || *json->at == '\r'))
    json->at++;
}

bool gos_json_maybe(gos_json_t *json, char c) {
  skip_space(json);
  if (json->at == json->end || *json->at != c) return false;
  json->at++;
  return true;
}

bool gos_json_take(gos_json_t *json, char c) { return gos_json_maybe(json, c); }

bool gos_json_end(gos_json_t *json) {
  skip_space(json);
  return json->at == json->end;
}

bool gos_json_uint(gos_json_t *json, uint64_t *out_value) {
  skip_space(json);
  const char *first = json->at;
  uint64_t value = 0;
  for (; json->at < json->end && *json->at >= '0' && *json->at <= '9'; json->at++) {
    uint64_t digit = (uint64_t)(*json->at - '0');
    if (value > (UINT64_MAX - digit) / 10) return false;
    value = value * 10 + digit;
  }
  if (json->at == first || (*first == '0' && json->at - first > 1)) return false;
  *out_value = value;
  return true;
}

// ---- strings ------------------------------------------------------------------------------------

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Four hexadecimal digits.
static bool take_hex(gos_json_t *json, uint32_t *out_value) {
  if (json->end - json->at < 4) return false;
  uint32_t value = 0;
  for (int i = 0; i < 4; i++, json->at++) {
    int digit = hex_digit(*json->at);
    if (digit < 0) return false;
    value = value * 16 + (uint32_t)digit;
  }
  *out_value = value;
  return true;
}

static void put_utf8(gos_json_t *json, uint32_t c) {
  char *out = json->strings;
  if (c < 0x80) {
    *out++ = (char)c;
  } else if (c < 0x800) {
    *out++ = (char)(0xc0 | c >> 6);
    *out++ = (char)(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    *out++ = (char)(0xe0 | c >> 12);
    *out++ = (char)(0x80 | (c >> 6 & 0x3f));
    *out++ = (char)(0x80 | (c & 0x3f));
  } else {
    *out++ = (char)(0xf0 | c >> 18);
    *out++ = (char)(0x80 | (c >> 12 & 0x3f));
    *out++ = (char)(0x80 | (c >> 6 & 0x3f));
    *out++ = (char)(0x80 | (c & 0x3f));
  }
  json->strings = out;
}

// After "\u": one UTF-16 unit, or a surrogate pair.
static bool take_unicode(gos_json_t *json) {
  uint32_t c, low;
  if (!take_hex(json, &c) || c == 0 || (c >= 0xdc00 && c < 0xe000)) return false;
  if (c >= 0xd800 && c < 0xdc00) {
    if (json->end - json->at < 6 || json->at[0] != '\\' || json->at[1] != 'u') return false;
    json->at += 2;
    if (!take_hex(json, &low) || low < 0xdc00 || low >= 0xe000) return false;
    c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
  }
  put_utf8(json, c);
  return true;
}

// After the backslash.
static bool take_escape(gos_json_t *json) {
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  if (json->at == json->end) return false;
  char c = *json->at++;
  if (c == 'u') return take_unicode(json);
  for (int i = 0; from[i] != '\0'; i++)
    if (from[i] == c) {
      *json->strings++ = to[i];
      return true;
    }
  return false;
}

bool gos_json_string(gos_json_t *json, const char **out_string) {
  *out_string = json->strings;
  if (!gos_json_take(json, '"')) return false;
  while (json->at < json->end) {
    char c = *json->at++;
    if (c == '"') {
      *json->strings++ = '\0'; // takes the place of a quote
      return true;
    }
    if ((unsigned char)c < 0x20) return false;
    if (c != '\\')
      *json->strings++ = c;
    else if (!take_escape(json))
      return false;
  }
  return false;
}
