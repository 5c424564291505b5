"""What must happen at once in Redis, in its own language. All keys of a call belong to one tenant.

Numbers are microseconds of the store's clock: below 2^53, so that Lua counts them exactly.
"""

from typing import Final

_NOW: Final = """
local function now()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end
local function digits(number) return string.format('%.0f', number) end
"""

_COUNT: Final = """
-- What a field holds, if it is a number that Lua counts exactly, else nil.
local function count(text)
  return type(text) == 'string' and #text < 17 and string.match(text, '^%-?%d+$') and tonumber(text) or nil
end
"""

ESTABLISH: Final = f"""{_NOW}
-- KEYS: record. ARGV: place, time to live of the record in ms, 'anew' if the record is not to be believed.
-- Returns 1 if there was one.
local kind = redis.call('TYPE', KEYS[1]).ok
local was_spoiled = kind ~= 'none' and (ARGV[3] == 'anew' or kind ~= 'hash')
if was_spoiled or kind == 'none' or redis.call('HEXISTS', KEYS[1], 'gt') == 0 then
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], 'gt', digits(now()), 'lt', ARGV[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return was_spoiled and 1 or 0
"""

INVALIDATE: Final = f"""{_NOW}{_COUNT}
-- KEYS: record. ARGV: target, before ('' for none), the log's identity, position (0 for none), 'replay' to do
-- nothing the second time, most marks, time to live of the record in ms. Returns 1 if what was there could
-- not be read.
local record, target, identity, position = KEYS[1], ARGV[1], ARGV[3], tonumber(ARGV[4])
local function read(field) return tonumber(redis.call('HGET', record, field) or '0') end
local function position_of(mark)
  -- In this log: the marks of another mean nothing.
  local life, number = string.match(mark or '', '^(%d+):(%d+)$')
  return life == identity and tonumber(number) or 0
end
local function mark(at) redis.call('HSET', record, 'l' .. at, identity .. ':' .. digits(position)) end
local function raise(at)
  -- 'n' is the greatest number ever given in this record.
  local number = math.max(now(), math.max(read('n'), read('gt')) + 1)
  redis.call('HSET', record, 'n', digits(number), 'g' .. at, digits(number))
end
local function is_sound()
  local kind = redis.call('TYPE', record).ok
  if kind ~= 'hash' then return kind == 'none' end
  local marks = redis.call('HGETALL', record)
  for i = 1, #marks, 2 do
    local kind, value = string.sub(marks[i], 1, 1), marks[i + 1]
    if (kind == 'g' or kind == 'n') and not count(value) then return false end
    if kind == 'b' and not (math.abs(tonumber(value) or math.huge) < 2^53) then return false end
    if kind == 'l' and not string.match(value, '^%d+:%d+$') then return false end
  end
  return true
end
local was_spoiled = not is_sound()
if was_spoiled then redis.call('DEL', record) end
if redis.call('HEXISTS', record, 'gt') == 0 then
  raise('t')
  mark('t')
end
local known = position_of(redis.call('HGET', record, 'l' .. target))
if ARGV[2] ~= '' then
  if tonumber(ARGV[2]) > read('b' .. target) then
    redis.call('HSET', record, 'b' .. target, ARGV[2])
  end
elseif ARGV[5] ~= 'replay' or position > known then
  raise(target)
  if position > known then mark(target) end
end
if redis.call('HLEN', record) > tonumber(ARGV[6]) then
  raise('t')
  local marks, number, before, last = redis.call('HGETALL', record), read('n'), 0, 0
  for i = 1, #marks, 2 do
    local kind = string.sub(marks[i], 1, 1)
    if kind == 'b' then before = math.max(before, tonumber(marks[i + 1])) end
    if kind == 'l' then last = math.max(last, position_of(marks[i + 1])) end
  end
  redis.call('DEL', record)
  redis.call('HSET', record, 'n', digits(number), 'gt', digits(number),
    'bt', string.format('%.6f', before), 'lt', identity .. ':' .. digits(last))
end
redis.call('PEXPIRE', record, ARGV[7])
return was_spoiled and 1 or 0
"""

_LEDGER: Final = f"""{_COUNT}
-- The ledger: a sorted set of digests by their end in ms, and a hash of their bytes, vector space and
-- wording, in which '#' is the sum of the bytes. KEYS: expiry, sizes. ARGV: beginning of the keys of entries,
-- of vectors, of wordings, tag. One that cannot be read begins anew, as one that is gone does.
local expiry, sizes, entries, vectors, wordings, tag = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local was_spoiled = 0
local function begin_anew()
  redis.call('DEL', expiry, sizes)
  was_spoiled = 1
end
local function is_sound()
  local ends, bytes = redis.call('TYPE', expiry).ok, redis.call('TYPE', sizes).ok
  if (ends ~= 'zset' and ends ~= 'none') or (bytes ~= 'hash' and bytes ~= 'none') then return false end
  local last = redis.call('ZRANGE', expiry, -1, -1, 'WITHSCORES')[2]
  return count(redis.call('HGET', sizes, '#') or '0') and tonumber(last or '0') < 2^53
end
if not is_sound() then begin_anew() end
local function forget(digest)
  local known = redis.call('HGET', sizes, digest)
  local num = redis.call('DEL', entries .. digest)
  redis.call('ZREM', expiry, digest)
  if known then
    local bytes, space, wording = string.match(known, '^(%d+) ?([^ ]*) ?(%x*)$')
    if not count(bytes) then
      begin_anew()
      return num
    end
    redis.call('HDEL', sizes, digest)
    redis.call('HINCRBY', sizes, '#', -tonumber(bytes))
    if space ~= '' then num = num + redis.call('DEL', vectors .. space .. ':' .. tag .. digest) end
    local alike = wordings .. tag .. wording  -- by now it may be another's
    if wording ~= '' and redis.pcall('GET', alike) == digest then num = num + redis.call('DEL', alike) end
  end
  return num
end
local function size()
  local num = redis.call('ZCARD', expiry)
  if num == 0 then redis.call('DEL', sizes) end  -- whatever it says: no error outlives the entries
  return num, tonumber(redis.call('HGET', sizes, '#') or '0')
end
"""

FORGET: Final = f"""{_LEDGER}
-- ARGV 5: 'gone' to forget only what has no entry any more; then digests. Returns how many keys went, 1 if
-- what was there could not be read, entries and bytes that are left.
local num = 0
for i = 6, #ARGV do
  if ARGV[5] ~= 'gone' or redis.call('EXISTS', entries .. ARGV[i]) == 0 then num = num + forget(ARGV[i]) end
end
local num_kept, kept_bytes = size()
return {{num, was_spoiled, num_kept, kept_bytes}}
"""

MAX_EVICTIONS: Final = 32
"""Of one write, and as many that have expired: more waits for the next write."""

WRITE: Final = f"""#!lua
-- (With this first line Redis runs it only while it has memory to write.)
{_NOW}{_LEDGER}
-- KEYS 3: record, 4: entry, 5: vector and 6: wording, if any. ARGV 5: number, 6: value, 7: time to live in
-- ms, 8: digest, 9: bytes, 10: vector space, 11: wording ('' for none), 12: most entries, 13: most bytes, 14:
-- time to live of the record in ms, not less than the entry's, 15: number of targets, the targets; then
-- fields and values of the vector.
local num_targets = tonumber(ARGV[15])
local standing = 0
for i = 1, num_targets do
  local mark = redis.pcall('HGET', KEYS[3], 'g' .. ARGV[15 + i])
  if mark and not count(mark) then return {{'overtaken', was_spoiled}} end  -- the next look-up renews it
  standing = math.max(standing, count(mark) or 0)
end
if standing ~= tonumber(ARGV[5]) then return {{'overtaken', was_spoiled}} end

local now_ms = math.floor(now() / 1000)
local digest, bytes, max_bytes = ARGV[8], tonumber(ARGV[9]), tonumber(ARGV[13])
if bytes > max_bytes then return {{'full', was_spoiled}} end
for _, each in ipairs(redis.call('ZRANGEBYSCORE', expiry, '-inf', now_ms, 'LIMIT', 0, {MAX_EVICTIONS})) do
  forget(each)
end
forget(digest)
for eviction = 0, {MAX_EVICTIONS} do
  local num_kept, kept_bytes = size()
  if num_kept < tonumber(ARGV[12]) and kept_bytes + bytes <= max_bytes then break end
  if eviction == {MAX_EVICTIONS} then return {{'full', was_spoiled}} end
  forget(redis.call('ZRANGE', expiry, 0, 0)[1])
end

redis.call('SET', KEYS[4], ARGV[6], 'PX', ARGV[7])
redis.call('ZADD', expiry, now_ms + tonumber(ARGV[7]), digest)
redis.call('HSET', sizes, digest, ARGV[9] .. ' ' .. ARGV[10] .. ' ' .. ARGV[11])
redis.call('HINCRBY', sizes, '#', bytes)
local last = digits(tonumber(redis.call('ZRANGE', expiry, -1, -1, 'WITHSCORES')[2]))
redis.call('PEXPIREAT', expiry, last)
redis.call('PEXPIREAT', sizes, last)
redis.call('PEXPIRE', KEYS[3], ARGV[14])
if KEYS[5] then
  redis.call('HSET', KEYS[5], unpack(ARGV, 16 + num_targets))
  redis.call('PEXPIRE', KEYS[5], ARGV[7])
end
if KEYS[6] then redis.call('SET', KEYS[6], digest, 'PX', ARGV[7]) end
return {{'stored', was_spoiled}}
"""
