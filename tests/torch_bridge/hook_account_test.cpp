// What hooks took, taken out of operators' times: by exact numbers, without torch.
#include "../../torch_bridge/hook_account.h"

#include <stdio.h>
#include <stdlib.h>

using sealift::bridge::HookAccount;
using sealift::bridge::HookCosts;

#define CHECK_EQUAL(left, right)                                                                                        \
  do {                                                                                                                  \
    const unsigned long long one = (left), other = (right);                                                             \
    if (one != other) fprintf(stderr, "%s:%d: %s is %llu, not %llu\n", __FILE__, __LINE__, #left, one, other), exit(1); \
  } while (0)

namespace {

HookCosts costs() {
  HookCosts one;
  one.own_ns = 200;
  one.once_ns = 80;
  one.each_ns = 20;
  return one;
}

// Like the recorder, whose hooks take what was measured, or `slower` times that.
void listen(HookAccount &account, const void *operation, bool is_end, int slower = 1) { account.note(operation, is_end, 100u * slower, true, costs()); }

void test_an_operator_inside() {
  HookAccount account;
  const int outer = 0, inner = 0;
  listen(account, &outer, false);
  const HookAccount::Mark mark = account.mark();
  listen(account, &inner, false);
  listen(account, &inner, true);
  CHECK_EQUAL(account.since(mark, 5000), 200 + 100);  // both hooks, and PyTorch's part once
}

void test_pytorchs_part_is_counted_once_for_two_listeners() {
  HookAccount account;
  const int outer = 0, inner = 0;
  listen(account, &outer, false);
  const HookAccount::Mark first = account.mark();
  listen(account, &outer, false);
  const HookAccount::Mark second = account.mark();
  for (const bool is_end : {false, true}) {
    listen(account, &inner, is_end);
    listen(account, &inner, is_end);
  }
  const uint64_t inside = 2 * 200 + 80 + 2 * 20;
  CHECK_EQUAL(account.since(second, 5000), inside);
  listen(account, &outer, true);                                // the first one's end comes before the second one's
  CHECK_EQUAL(account.since(second, 5000), inside + 100 + 50);  // the first to hear the end
  CHECK_EQUAL(account.since(first, 5000), inside + 2 * 100 + 10 + 50);
}

void test_operators_in_turn_at_one_address() {
  HookAccount account;
  const int place = 0;
  const HookAccount::Mark mark = account.mark();
  for (int i = 0; i < 3; ++i) {
    listen(account, &place, false);
    listen(account, &place, true);
  }
  CHECK_EQUAL(account.since(mark, 5000), 3 * 300);
  listen(account, &place, false);  // whoever listens here does not hear the end
  account.forget_moment();
  listen(account, &place, false);
  CHECK_EQUAL(account.since(mark, 5000), 5 * 300 - 2 * 150);
}

void test_cold_hooks_and_users() {
  HookAccount account;
  const int place = 0;
  HookAccount::Mark mark = account.mark();
  listen(account, &place, false, 3);
  listen(account, &place, true, 3);
  CHECK_EQUAL(account.since(mark, 5000), 3 * 300);
  mark = account.mark();
  listen(account, &place, false, 100);  // waited for something: PyTorch did not
  listen(account, &place, true, 100);
  CHECK_EQUAL(account.since(mark, 50000), 200 * 100 + 4 * 100);
  mark = account.mark();
  account.note(&place, false, 3000, false, costs());  // a user's callback takes as long as it takes
  account.note(&place, true, 3000, false, costs());
  CHECK_EQUAL(account.since(mark, 50000), 6000 + 100);
}

void test_bounds() {
  HookAccount account;
  const int place = 0;
  const HookAccount::Mark mark = account.mark();
  CHECK_EQUAL(account.note(&place, false, 9000, true, costs()), 5000 + 200);  // what recording cost: no more than 5 us of a hook
  account.note(&place, true, 100, true, costs());
  CHECK_EQUAL(account.since(mark, 9300), 9100 + 100);  // of 200 ns that are left an estimate takes half
  CHECK_EQUAL(account.since(mark, 50), 50);            // of what the clock says, no more than there is
  const HookAccount other;
  CHECK_EQUAL(other.since(account.mark(), 100), 0);  // an operator that ended on another thread
}

}  // namespace

int main() {
  test_an_operator_inside();
  test_pytorchs_part_is_counted_once_for_two_listeners();
  test_operators_in_turn_at_one_address();
  test_cold_hooks_and_users();
  test_bounds();
  puts("fine");
  return 0;
}
